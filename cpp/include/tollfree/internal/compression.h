// gRPC's message encodings: gzip and deflate. Not for programs.
#ifndef TOLLFREE_INTERNAL_COMPRESSION_H
#define TOLLFREE_INTERNAL_COMPRESSION_H

#include <grpc/compression.h>
#include <grpcpp/support/status.h>
#include <tollfree/internal/bytes.h>

#include <map>
#include <string>

namespace tollfree {
namespace internal {

// The encodings that this library takes, as `grpc-accept-encoding` lists them.
extern const char kAcceptedEncodings[];

// As `grpc-encoding` names it; null for none.
const char* NameOf(grpc_compression_algorithm encoding);

// What a context's `set_compression_algorithm` has put into its metadata. Whether it was called.
bool RequestedEncoding(const std::multimap<std::string, std::string>& metadata, grpc_compression_algorithm* encoding);

// Whether the metadata that a peer has sent lists an encoding in `grpc-accept-encoding`.
bool Accepts(tollfree_bytes metadata, grpc_compression_algorithm encoding);

// The value of a name in a block of metadata, or "".
std::string ValueOf(tollfree_bytes metadata, const char* name);

// Replaces a message by its compressed bytes, if they are fewer.
void Compress(grpc_compression_algorithm encoding, Payload* message);

// Replaces compressed bytes by those of the message, which is at most `len_max` long.
grpc::Status Decompress(const std::string& encoding, size_t len_max, Payload* message);

}  // namespace internal
}  // namespace tollfree

#endif
