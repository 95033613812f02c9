package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (it *snapshot) told() *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: it.Id, SourceVolumeId: it.VolID, SizeBytes: it.SizeBytes,
		CreationTime: timestamppb.New(it.CreationTime), ReadyToUse: it.ReadyToUse,
		GroupSnapshotId: it.GroupSnapshotID,
	}
}

// Copies a volume's files. Nothing is on record yet.
func (d *driver) cut(name, id, group string) (*snapshot, error) {
	var from *volume
	err := d.state.use(false, func() error {
		if from = d.state.volume(id); from == nil {
			return absent(id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	key := rand.Text()
	made := &snapshot{
		Name: name, Id: key, VolID: id, Path: filepath.Join(d.state.dir, key+".snap"),
		CreationTime: time.Now(), SizeBytes: from.VolSize, ReadyToUse: true,
		GroupSnapshotID: group,
	}
	if out, err := exec.Command("cp", "-a", from.VolPath, made.Path).CombinedOutput(); err != nil {
		return nil, status.Errorf(codes.Internal, "cp: %s", out)
	}
	return made, nil
}

func (d *driver) CreateSnapshot(
	_ context.Context, request *csi.CreateSnapshotRequest,
) (*csi.CreateSnapshotResponse, error) {
	done, err := d.busy.take("snapshot "+request.Name, request.SourceVolumeId)
	if err != nil {
		return nil, err
	}
	defer done()
	linger()
	var made *snapshot
	err = d.state.use(false, func() error {
		isIt := func(it *snapshot) bool { return it.Name == request.Name }
		if made = find(d.state.Snapshots, isIt); made != nil && made.VolID != request.SourceVolumeId {
			return status.Error(codes.AlreadyExists, "there is another one of this name")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if made == nil {
		if made, err = d.cut(request.Name, request.SourceVolumeId, ""); err != nil {
			return nil, err
		}
		if err := d.state.use(true, func() error {
			d.state.Snapshots = append(d.state.Snapshots, made)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	linger()
	return &csi.CreateSnapshotResponse{Snapshot: made.told()}, nil
}

func (d *driver) DeleteSnapshot(
	_ context.Context, request *csi.DeleteSnapshotRequest,
) (*csi.DeleteSnapshotResponse, error) {
	done, err := d.busy.take(request.SnapshotId)
	if err != nil {
		return nil, err
	}
	defer done()
	linger()
	err = d.state.use(true, func() error {
		it := d.state.snapshot(request.SnapshotId)
		if it != nil && it.GroupSnapshotID != "" {
			return status.Errorf(codes.InvalidArgument, "%s is part of a group", it.Id)
		}
		return d.drop(it)
	})
	linger()
	return &csi.DeleteSnapshotResponse{}, err
}

func (d *driver) drop(it *snapshot) error {
	if it == nil {
		return nil
	}
	isIt := func(other *snapshot) bool { return other == it }
	d.state.Snapshots = without(d.state.Snapshots, isIt)
	return os.RemoveAll(it.Path)
}

func (d *driver) ListSnapshots(
	_ context.Context, request *csi.ListSnapshotsRequest,
) (*csi.ListSnapshotsResponse, error) {
	answer := &csi.ListSnapshotsResponse{}
	err := d.state.use(false, func() error {
		for _, it := range d.state.Snapshots {
			answer.Entries = append(answer.Entries,
				&csi.ListSnapshotsResponse_Entry{Snapshot: it.told()})
		}
		return nil
	})
	return answer, err
}

func (d *driver) GroupControllerGetCapabilities(
	context.Context, *csi.GroupControllerGetCapabilitiesRequest,
) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	kind := csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT
	rpc := &csi.GroupControllerServiceCapability_RPC{Type: kind}
	return &csi.GroupControllerGetCapabilitiesResponse{
		Capabilities: []*csi.GroupControllerServiceCapability{{
			Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: rpc},
		}},
	}, nil
}

func (d *driver) CreateVolumeGroupSnapshot(
	_ context.Context, request *csi.CreateVolumeGroupSnapshotRequest,
) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	ids := slices.Sorted(slices.Values(request.SourceVolumeIds))
	done, err := d.busy.take(append([]string{"group " + request.Name}, ids...)...)
	if err != nil {
		return nil, err
	}
	defer done()
	linger()
	var made *group
	err = d.state.use(false, func() error {
		isIt := func(it *group) bool { return it.Name == request.Name }
		if made = find(d.state.GroupSnapshots, isIt); made != nil &&
			!slices.Equal(made.SourceVolumeIDs, ids) {
			return status.Error(codes.AlreadyExists, "there is another one of this name")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if made == nil {
		made = &group{
			Name: request.Name, Id: rand.Text(), SourceVolumeIDs: ids, CreationTime: time.Now(),
		}
		var members []*snapshot
		for _, id := range ids {
			one, err := d.cut(request.Name+"-"+id, id, made.Id)
			if err != nil {
				return nil, err
			}
			members = append(members, one)
			made.SnapshotIDs = append(made.SnapshotIDs, one.Id)
		}
		if err := d.state.use(true, func() error {
			d.state.Snapshots = append(d.state.Snapshots, members...)
			d.state.GroupSnapshots = append(d.state.GroupSnapshots, made)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	linger()
	told := &csi.VolumeGroupSnapshot{
		GroupSnapshotId: made.Id, CreationTime: timestamppb.New(made.CreationTime),
		ReadyToUse: true,
	}
	err = d.state.use(false, func() error {
		for _, id := range made.SnapshotIDs {
			if it := d.state.snapshot(id); it != nil {
				told.Snapshots = append(told.Snapshots, it.told())
			}
		}
		return nil
	})
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: told}, err
}

func (d *driver) DeleteVolumeGroupSnapshot(
	_ context.Context, request *csi.DeleteVolumeGroupSnapshotRequest,
) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	done, err := d.busy.take(request.GroupSnapshotId)
	if err != nil {
		return nil, err
	}
	defer done()
	linger()
	err = d.state.use(true, func() error {
		isIt := func(it *group) bool { return it.Id == request.GroupSnapshotId }
		it := find(d.state.GroupSnapshots, isIt)
		if it == nil {
			return nil
		}
		for _, id := range it.SnapshotIDs {
			if !slices.Contains(request.SnapshotIds, id) {
				return status.Errorf(codes.InvalidArgument, "snapshot %s is not named", id)
			}
		}
		for _, id := range it.SnapshotIDs {
			if err := d.drop(d.state.snapshot(id)); err != nil {
				return err
			}
		}
		d.state.GroupSnapshots = without(d.state.GroupSnapshots, isIt)
		return nil
	})
	linger()
	return &csi.DeleteVolumeGroupSnapshotResponse{}, err
}
