"""A program that asks a driver to prepare a claim and prints the answer: SOCKET NAMESPACE UID NAME."""

import sys

import grpc
from google.protobuf.json_format import MessageToJson

from dra_plugin._proto import dra_v1_pb2 as messages

METHOD = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
PATIENCE = 45.0


def main(socket: str, namespace: str, uid: str, name: str) -> None:
    """Ask once, with the kubelet's deadline."""
    claim = messages.Claim(namespace=namespace, uid=uid, name=name)
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(
            METHOD,
            request_serializer=messages.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=messages.NodePrepareResourcesResponse.FromString,
        )
        answer = call(messages.NodePrepareResourcesRequest(claims=[claim]), timeout=PATIENCE)
    print(MessageToJson(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
