package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetInfo(
	context.Context, *csi.NodeGetInfoRequest,
) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node, AccessibleTopology: d.here()[0]}, nil
}

func (d *driver) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, one := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		rpc := &csi.NodeServiceCapability_RPC{Type: one}
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: rpc},
		})
	}
	return answer, nil
}

// Changes a volume that must be there: node calls about one that is lost answer NOT_FOUND.
func (d *driver) change(id string, work func(*volume) error) error {
	done, err := d.busy.take(id)
	if err != nil {
		return err
	}
	defer done()
	linger()
	return d.state.use(true, func() error {
		it := d.state.volume(id)
		if it == nil {
			return absent(id)
		}
		return work(it)
	})
}

func add(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}

func remove(all []string, one string) []string {
	return slices.DeleteFunc(all, func(it string) bool { return it == one })
}

// Only a note: nothing is mounted at the staging path.
func (d *driver) NodeStageVolume(
	_ context.Context, request *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	err := d.change(request.VolumeId, func(it *volume) error {
		if d.attach && !it.Attached {
			return status.Errorf(codes.Internal, "stage of %s before its attach", it.VolID)
		}
		it.Staged = add(it.Staged, request.StagingTargetPath)
		return nil
	})
	return &csi.NodeStageVolumeResponse{}, err
}

func (d *driver) NodeUnstageVolume(
	_ context.Context, request *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	err := d.change(request.VolumeId, func(it *volume) error {
		if len(it.Published) > 0 {
			return status.Errorf(codes.Internal, "unstage of %s while it is published", it.VolID)
		}
		it.Staged = remove(it.Staged, request.StagingTargetPath)
		return nil
	})
	return &csi.NodeUnstageVolumeResponse{}, err
}

func (d *driver) NodePublishVolume(
	_ context.Context, request *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	target := request.TargetPath
	err := d.change(request.VolumeId, func(it *volume) error {
		if !slices.Contains(it.Staged, request.StagingTargetPath) {
			return status.Errorf(codes.FailedPrecondition, "%s is not staged", it.VolID)
		}
		if slices.Contains(it.Published, target) {
			return nil
		}
		if err := os.MkdirAll(target, 0o750); err != nil {
			return err
		}
		// A killed process may have mounted it: it is mounted once.
		if err := syscall.Unmount(target, 0); err != nil && !errors.Is(err, syscall.EINVAL) {
			return err
		}
		if err := syscall.Mount(it.VolPath, target, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
		if request.Readonly {
			flags := uintptr(syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY)
			if err := syscall.Mount("", target, "", flags, ""); err != nil {
				return err
			}
		}
		it.Published = add(it.Published, target)
		return nil
	})
	return &csi.NodePublishVolumeResponse{}, err
}

func (d *driver) NodeUnpublishVolume(
	_ context.Context, request *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	target := request.TargetPath
	err := d.change(request.VolumeId, func(it *volume) error {
		err := syscall.Unmount(target, 0)
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			return err
		}
		if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		it.Published = remove(it.Published, target)
		return nil
	})
	return &csi.NodeUnpublishVolumeResponse{}, err
}

func (d *driver) NodeExpandVolume(
	_ context.Context, request *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	size := request.GetCapacityRange().GetRequiredBytes()
	if size == 0 {
		return nil, status.Error(codes.InvalidArgument, "no capacity range")
	}
	err := d.change(request.VolumeId, func(it *volume) error {
		if size > it.VolSize {
			return status.Errorf(codes.OutOfRange, "%d bytes of %d", size, it.VolSize)
		}
		return nil
	})
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, err
}
