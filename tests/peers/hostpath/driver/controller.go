package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	types := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if d.attach {
		types = append(types, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, one := range types {
		rpc := &csi.ControllerServiceCapability_RPC{Type: one}
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc},
		})
	}
	return answer, nil
}

func (d *driver) CreateVolume(
	_ context.Context, request *csi.CreateVolumeRequest,
) (*csi.CreateVolumeResponse, error) {
	if request.Name == "" || len(request.VolumeCapabilities) == 0 {
		return nil, status.Error(codes.InvalidArgument, "name or capabilities are missing")
	}
	done, err := d.busy.take(request.Name)
	if err != nil {
		return nil, err
	}
	defer done()
	linger()
	size := request.GetCapacityRange().GetRequiredBytes()
	made, source, err := d.makeVolume(request, size)
	if err != nil {
		return nil, err
	}
	if source != "" {
		// The files come before the record: a killed copy is no volume.
		if out, err := exec.Command("cp", "-a", source+"/.", made.VolPath).CombinedOutput(); err != nil {
			return nil, status.Errorf(codes.Internal, "cp: %s", out)
		}
	}
	if err := d.state.use(true, func() error {
		if d.state.volume(made.VolID) == nil {
			d.state.Volumes = append(d.state.Volumes, made)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	linger()
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: made.VolID, CapacityBytes: made.VolSize, VolumeContext: request.Parameters,
		ContentSource: request.VolumeContentSource, AccessibleTopology: d.here(),
	}}, nil
}

// The volume of this name, or a new one with its directory, and where its content comes from.
func (d *driver) makeVolume(
	request *csi.CreateVolumeRequest, size int64,
) (made *volume, source string, err error) {
	fromVolume := request.GetVolumeContentSource().GetVolume().GetVolumeId()
	fromSnapshot := request.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
	err = d.state.use(false, func() error {
		isIt := func(it *volume) bool { return it.VolName == request.Name }
		if made = find(d.state.Volumes, isIt); made != nil {
			if made.VolSize < size || made.ParentVolID != fromVolume ||
				made.ParentSnapID != fromSnapshot {
				return status.Error(codes.AlreadyExists, "there is another one of this name")
			}
			return nil
		}
		if fromVolume != "" {
			from := d.state.volume(fromVolume)
			if from == nil {
				return absent(fromVolume)
			}
			source, size = from.VolPath, max(size, from.VolSize)
		}
		if fromSnapshot != "" {
			from := d.state.snapshot(fromSnapshot)
			if from == nil {
				return absent(fromSnapshot)
			}
			source, size = from.Path, max(size, from.SizeBytes)
		}
		id := rand.Text()
		made = &volume{
			VolName: request.Name, VolID: id, VolPath: filepath.Join(d.state.dir, id),
			NodeID: d.node, VolSize: size, ParentVolID: fromVolume, ParentSnapID: fromSnapshot,
		}
		return os.Mkdir(made.VolPath, 0o777)
	})
	return made, source, err
}

func (d *driver) DeleteVolume(
	_ context.Context, request *csi.DeleteVolumeRequest,
) (*csi.DeleteVolumeResponse, error) {
	done, err := d.busy.take(request.VolumeId)
	if err != nil {
		return nil, err
	}
	defer done()
	linger()
	err = d.state.use(true, func() error {
		it := d.state.volume(request.VolumeId)
		if it == nil {
			return nil
		}
		if it.Attached || len(it.Staged) > 0 || len(it.Published) > 0 {
			return status.Errorf(codes.Internal, "volume %s is still used: %+v", it.VolID, it)
		}
		isIt := func(other *volume) bool { return other == it }
		d.state.Volumes = without(d.state.Volumes, isIt)
		return os.RemoveAll(it.VolPath)
	})
	linger()
	return &csi.DeleteVolumeResponse{}, err
}

func (d *driver) ControllerExpandVolume(
	_ context.Context, request *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	done, err := d.busy.take(request.VolumeId)
	if err != nil {
		return nil, err
	}
	defer done()
	linger()
	answer := &csi.ControllerExpandVolumeResponse{NodeExpansionRequired: true}
	err = d.state.use(true, func() error {
		it := d.state.volume(request.VolumeId)
		if it == nil {
			return absent(request.VolumeId)
		}
		it.VolSize = max(it.VolSize, request.GetCapacityRange().GetRequiredBytes())
		answer.CapacityBytes = it.VolSize
		return nil
	})
	linger()
	return answer, err
}

func (d *driver) ValidateVolumeCapabilities(
	_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	err := d.state.use(false, func() error {
		if d.state.volume(request.VolumeId) == nil {
			return absent(request.VolumeId)
		}
		return nil
	})
	confirmed := &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: request.VolumeContext, VolumeCapabilities: request.VolumeCapabilities,
		Parameters: request.Parameters,
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: confirmed}, err
}

// As csi-driver-host-path does: never a next_token, and its own node for every volume.
func (d *driver) ListVolumes(
	_ context.Context, request *csi.ListVolumesRequest,
) (*csi.ListVolumesResponse, error) {
	answer := &csi.ListVolumesResponse{}
	err := d.state.use(false, func() error {
		for _, it := range d.state.Volumes {
			listed := &csi.Volume{
				VolumeId: it.VolID, CapacityBytes: it.VolSize, AccessibleTopology: d.here(),
			}
			status := &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: []string{d.node}}
			answer.Entries = append(answer.Entries,
				&csi.ListVolumesResponse_Entry{Volume: listed, Status: status})
		}
		return nil
	})
	return answer, err
}

func (d *driver) ControllerPublishVolume(
	_ context.Context, request *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	err := d.setAttached(request.VolumeId, request.NodeId, true)
	return &csi.ControllerPublishVolumeResponse{}, err
}

func (d *driver) ControllerUnpublishVolume(
	_ context.Context, request *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	err := d.setAttached(request.VolumeId, request.NodeId, false)
	return &csi.ControllerUnpublishVolumeResponse{}, err
}

func (d *driver) setAttached(id, node string, attached bool) error {
	done, err := d.busy.take(id)
	if err != nil {
		return err
	}
	defer done()
	linger()
	return d.state.use(true, func() error {
		it := d.state.volume(id)
		switch {
		case node != d.node:
			return absent("node " + node)
		case it == nil && attached:
			return absent(id)
		case it == nil:
			return nil
		case !attached && (len(it.Staged) > 0 || len(it.Published) > 0):
			return status.Errorf(codes.Internal, "volume %s is still used: %+v", id, it)
		}
		it.Attached = attached
		return nil
	})
}
