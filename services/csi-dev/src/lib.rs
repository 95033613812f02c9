//! The development CSI driver: directories with real mounts, and a judge of call order.
