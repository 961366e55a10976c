"""Generated code for the kubelet's gRPC services; made by hack/protos from the .proto files beside it."""
