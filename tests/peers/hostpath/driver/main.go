// A driver in Go that can be put in the place of csi-driver-host-path: the same flags, the same
// state file, and the same answers where they differ from those of other drivers.
//
// It is made of what nearly all drivers are made of: grpc-go, and the bindings that CSI publishes.
// So it also tries Berth's own reading of csi.proto, and its gRPC client.
//
// Owns:     the directory of --statedir. One process serves one node.
// Promises: that an answer comes after its change is in state.json; that a volume with a call under
// way answers ABORTED to another one; that DeleteVolume refuses what is still mounted.
// Never:    undoes what a killed process had begun: the next call with the same name goes on.
package main

import (
	"context"
	"flag"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	version     = "v0.1.0"
	topologyKey = "topology.hostpath.csi/node"
)

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	csi.UnimplementedNodeServer
	name, node string
	attach     bool
	state      *state
	busy       *busy
}

func main() {
	endpoint := flag.String("endpoint", "", "unix:// and the socket's path")
	dir := flag.String("statedir", "", "where state.json and the volumes are")
	d := &driver{busy: newBusy()}
	flag.StringVar(&d.name, "drivername", "hostpath.csi.k8s.io", "the driver's name")
	flag.StringVar(&d.node, "nodeid", "", "the node's id")
	flag.BoolVar(&d.attach, "enable-attach", false, "offer ControllerPublishVolume")
	flag.Bool("check-volume-lifecycle", true, "as it always does here")
	flag.Int("v", 0, "calls are logged at any level")
	flag.Parse()
	var err error
	if d.state, err = openState(*dir); err != nil {
		log.Fatal(err)
	}
	path := strings.TrimPrefix(*endpoint, "unix://")
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterGroupControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	log.Fatal(server.Serve(listener))
}

// Logs each call with its code.
func logged(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	answer, err := next(ctx, request)
	log.Printf("GRPC call: %s %s", info.FullMethod, status.Code(err))
	if err != nil {
		log.Printf("GRPC error: %v", err)
	}
	return answer, err
}

// Takes some time, so that a kill falls within calls: up to SLOW_MS milliseconds. The call goes on
// when its caller is gone, as it does in most drivers.
func linger() {
	if most, _ := time.ParseDuration(os.Getenv("SLOW_MS") + "ms"); most > 0 {
		time.Sleep(rand.N(most))
	}
}

func (d *driver) GetPluginInfo(
	context.Context, *csi.GetPluginInfoRequest,
) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: version}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	answer := &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{
		Type: &csi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
				Type: csi.PluginCapability_VolumeExpansion_ONLINE,
			},
		},
	}}}
	for _, one := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE,
		csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
		csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE,
	} {
		service := &csi.PluginCapability_Service{Type: one}
		answer.Capabilities = append(answer.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: service},
		})
	}
	return answer, nil
}

// Where this process's volumes are.
func (d *driver) here() []*csi.Topology {
	return []*csi.Topology{{Segments: map[string]string{topologyKey: d.node}}}
}

func absent(id string) error {
	return status.Errorf(codes.NotFound, "%s does not exist", id)
}
