// Messages as bytes: protobuf's, and gRPC's ByteBuffer. Not for programs.
#ifndef TOLLFREE_INTERNAL_CODEC_H
#define TOLLFREE_INTERNAL_CODEC_H

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>
#include <tollfree/internal/bytes.h>

namespace tollfree {
namespace internal {

// Encodes a message. `is_kept`: the bytes outlive the call of this function; else those of a short message stay until this thread encodes
// the next. Where it can't be encoded, the status says why.
grpc::Status Encode(const google::protobuf::MessageLite& message, bool is_kept, Payload* payload);
grpc::Status Encode(const grpc::ByteBuffer& message, bool is_kept, Payload* payload);

grpc::Status Decode(Message* from, google::protobuf::MessageLite* message);
// Without a copy: the buffer keeps the payload.
grpc::Status Decode(Message* from, grpc::ByteBuffer* message);

}  // namespace internal
}  // namespace tollfree

#endif
