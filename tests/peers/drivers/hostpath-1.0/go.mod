module berth/tests/peers/drivers/hostpath-1.0

go 1.25.0

tool github.com/kubernetes-csi/drivers/app/hostpathplugin

require (
	github.com/container-storage-interface/spec v1.0.0
	github.com/golang/glog v1.0.0
	github.com/golang/protobuf v1.3.2
	github.com/kubernetes-csi/csi-lib-utils v0.2.0
	github.com/kubernetes-csi/drivers v1.0.2
	github.com/pborman/uuid v1.2.0
	google.golang.org/genproto v0.0.0-20191114150713-6bbd007550de
	google.golang.org/grpc v1.25.1
	k8s.io/apimachinery v0.17.0
	k8s.io/kubernetes v1.12.0
	k8s.io/utils v0.0.0-20191114184206-e782cd3c129f
)

require (
	github.com/google/uuid v1.1.1 // indirect
	golang.org/x/net v0.0.0-20191004110552-13f9640d40b9 // indirect
	golang.org/x/sys v0.0.0-20190826190057-c7b8b68b1456 // indirect
	golang.org/x/text v0.3.2 // indirect
)
