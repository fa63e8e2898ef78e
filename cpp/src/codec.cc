#include <tollfree/internal/codec.h>
#include <tollfree/internal/compression.h>

#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <climits>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <vector>

namespace tollfree {
namespace internal {
namespace {

// The library copies messages up to here; longer ones it sends from where they were encoded.
constexpr size_t kCopiedMax = 4096;

grpc::Status NoMemory() { return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "there is no memory for the message"); }

// The bytes of a message as it was before it was compressed.
grpc::Status Unpack(Message* from) {
  if (!from->is_compressed) return grpc::Status::OK;
  from->is_compressed = false;
  if (!from->Join()) return NoMemory();
  return Decompress(from->encoding, from->len_max, &from->payload);
}

void Free(void* memory) { free(memory); }

bool Parse(const Message& from, google::protobuf::MessageLite* message) {
  if (from.more.empty()) return message->ParseFromArray(from.payload.data(), static_cast<int>(from.payload.size()));
  using google::protobuf::io::ArrayInputStream;
  // They don't move.
  std::deque<ArrayInputStream> pieces;
  pieces.emplace_back(from.payload.data(), static_cast<int>(from.payload.size()));
  for (const Payload& piece : from.more) pieces.emplace_back(piece.data(), static_cast<int>(piece.size()));
  std::vector<google::protobuf::io::ZeroCopyInputStream*> streams;
  for (ArrayInputStream& piece : pieces) streams.push_back(&piece);
  google::protobuf::io::ConcatenatingInputStream whole(streams.data(), static_cast<int>(streams.size()));
  return message->ParseFromZeroCopyStream(&whole);
}

grpc::Slice SliceOf(Payload payload) {
  auto* kept = new Payload(std::move(payload));
  // gRPC takes no const: it only reads.
  return grpc::Slice(const_cast<uint8_t*>(kept->data()), kept->size(), [](void* of) { delete static_cast<Payload*>(of); }, kept);
}

}  // namespace

grpc::Status Encode(const google::protobuf::MessageLite& message, bool is_kept, Payload* payload) {
  size_t size = message.ByteSizeLong();
  if (size > INT_MAX) return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "a message of protobuf has at most 2 GiB");
  if (size <= kCopiedMax && !is_kept) {
    thread_local uint8_t scratch[kCopiedMax];
    message.SerializeWithCachedSizesToArray(scratch);
    *payload = Payload(tollfree_payload{{scratch, size}, {0}});
    return grpc::Status::OK;
  }
  auto* memory = static_cast<uint8_t*>(malloc(size + 1));
  if (memory == nullptr) return NoMemory();
  message.SerializeWithCachedSizesToArray(memory);
  return Payload::Wrap(memory, size, Free, memory, payload) ? grpc::Status::OK : NoMemory();
}

grpc::Status Encode(const grpc::ByteBuffer& message, bool, Payload* payload) {
  grpc::Slice slice;
  // One slice is sent from where it lies; several are joined by gRPC.
  if (message.Valid() && message.Length() > 0) {
    grpc::Status status = message.TrySingleSlice(&slice);
    if (!status.ok()) status = message.DumpToSingleSlice(&slice);
    if (!status.ok()) return status;
  }
  auto* kept = new (std::nothrow) grpc::Slice(slice);
  if (kept == nullptr) return NoMemory();
  bool is_wrapped = Payload::Wrap(kept->begin(), kept->size(), [](void* of) { delete static_cast<grpc::Slice*>(of); }, kept, payload);
  return is_wrapped ? grpc::Status::OK : NoMemory();
}

grpc::Status Decode(Message* from, google::protobuf::MessageLite* message) {
  grpc::Status unpacked = Unpack(from);
  if (!unpacked.ok()) return unpacked;
  // As gRPC does it: what was there before is gone.
  if (from->size() > INT_MAX || !Parse(*from, message)) {
    return grpc::Status(grpc::StatusCode::INTERNAL, "the message that came is no " + message->GetTypeName());
  }
  return grpc::Status::OK;
}

grpc::Status Decode(Message* from, grpc::ByteBuffer* message) {
  grpc::Status unpacked = Unpack(from);
  if (!unpacked.ok()) return unpacked;
  std::vector<grpc::Slice> slices;
  slices.push_back(SliceOf(std::move(from->payload)));
  for (Payload& piece : from->more) slices.push_back(SliceOf(std::move(piece)));
  *message = grpc::ByteBuffer(slices.data(), slices.size());
  return grpc::Status::OK;
}

}  // namespace internal
}  // namespace tollfree
