"""A program that asks a driver to prepare or unprepare a claim and prints the answer.

Arguments: Prepare|Unprepare SOCKET NAMESPACE UID NAME
"""

import sys

import grpc
from google.protobuf.json_format import MessageToJson

from dra_plugin._proto import dra_v1_pb2 as messages

SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
PATIENCE = 45.0


def main(verb: str, socket: str, namespace: str, uid: str, name: str) -> None:
    """Ask once, with the kubelet's deadline."""
    request = getattr(messages, f"Node{verb}ResourcesRequest")
    claim = messages.Claim(namespace=namespace, uid=uid, name=name)
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(
            f"{SERVICE}/Node{verb}Resources",
            request_serializer=request.SerializeToString,
            response_deserializer=getattr(messages, f"Node{verb}ResourcesResponse").FromString,
        )
        answer = call(request(claims=[claim]), timeout=PATIENCE)
    print(MessageToJson(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
