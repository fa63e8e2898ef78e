#include <tollfree/internal/compression.h>
#include <zlib.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>
#include <vector>

namespace tollfree {
namespace internal {
namespace {

constexpr char kEncodingRequest[] = "grpc-internal-encoding-request";
// What zlib has gzip's frame for, beside the longest window.
constexpr int kWindowBits = 15, kGzip = 16;
// Memory that a message is first decompressed into, in bytes; more is taken as it is needed.
constexpr size_t kRoomMin = 4096;

int WindowBits(grpc_compression_algorithm encoding) { return encoding == GRPC_COMPRESS_GZIP ? kWindowBits + kGzip : kWindowBits; }

void Free(void* memory) { free(memory); }

using Memory = std::unique_ptr<uint8_t, decltype(&Free)>;

void Give(Memory memory, size_t size, Payload* message) {
  uint8_t* bytes = memory.release();
  Payload::Wrap(bytes, size, Free, bytes, message);
}

grpc::Status Error(grpc::StatusCode code, const std::string& text) { return grpc::Status(code, text); }

}  // namespace

const char kAcceptedEncodings[] = "identity,deflate,gzip";

const char* NameOf(grpc_compression_algorithm encoding) {
  switch (encoding) {
    case GRPC_COMPRESS_DEFLATE:
      return "deflate";
    case GRPC_COMPRESS_GZIP:
      return "gzip";
    default:
      return nullptr;
  }
}

bool RequestedEncoding(const std::multimap<std::string, std::string>& metadata, grpc_compression_algorithm* encoding) {
  auto found = metadata.find(kEncodingRequest);
  if (found == metadata.end()) return false;
  *encoding = found->second == "gzip" ? GRPC_COMPRESS_GZIP : found->second == "deflate" ? GRPC_COMPRESS_DEFLATE : GRPC_COMPRESS_NONE;
  return true;
}

std::string ValueOf(tollfree_bytes metadata, const char* name) {
  std::string found;
  ForEachPair(metadata, [&](std::string key, std::string value) {
    if (key == name) found = std::move(value);
  });
  return found;
}

bool Accepts(tollfree_bytes metadata, grpc_compression_algorithm encoding) {
  const char* name = NameOf(encoding);
  if (name == nullptr) return false;
  std::string list = ValueOf(metadata, "grpc-accept-encoding");
  list.erase(std::remove(list.begin(), list.end(), ' '), list.end());
  return ("," + list + ",").find("," + std::string(name) + ",") != std::string::npos;
}

void Compress(grpc_compression_algorithm encoding, Payload* message) {
  if (NameOf(encoding) == nullptr || message->is_compressed() || message->size() == 0 || message->size() > INT_MAX) return;
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, WindowBits(encoding), 8, Z_DEFAULT_STRATEGY) != Z_OK) return;
  // What does not get shorter goes as it is.
  Memory memory(static_cast<uint8_t*>(malloc(message->size())), Free);
  stream.next_in = const_cast<uint8_t*>(message->data());
  stream.avail_in = static_cast<uInt>(message->size());
  stream.next_out = memory.get();
  stream.avail_out = static_cast<uInt>(message->size());
  bool is_shorter = memory != nullptr && deflate(&stream, Z_FINISH) == Z_STREAM_END;
  size_t size = stream.total_out;
  deflateEnd(&stream);
  if (!is_shorter || size >= message->size()) return;
  Payload compressed;
  Give(std::move(memory), size, &compressed);
  if (compressed.size() == 0) return;
  *message = std::move(compressed);
  message->set_compressed();
}

grpc::Status Decompress(const std::string& encoding, size_t len_max, Payload* message) {
  if (encoding != "gzip" && encoding != "deflate") {
    return Error(grpc::StatusCode::INTERNAL, "a compressed message has come, and grpc-encoding is \"" + encoding + "\": gzip and deflate are known here");
  }
  z_stream stream{};
  if (message->size() > INT_MAX) return Error(grpc::StatusCode::RESOURCE_EXHAUSTED, "a compressed message has at most 2 GiB");
  if (inflateInit2(&stream, WindowBits(encoding == "gzip" ? GRPC_COMPRESS_GZIP : GRPC_COMPRESS_DEFLATE)) != Z_OK) {
    return Error(grpc::StatusCode::RESOURCE_EXHAUSTED, "there is no memory to decompress a message");
  }
  std::unique_ptr<z_stream, int (*)(z_stream*)> ends(&stream, inflateEnd);
  stream.next_in = const_cast<uint8_t*>(message->data());
  stream.avail_in = static_cast<uInt>(message->size());
  std::vector<uint8_t> whole;
  int state = Z_OK;
  while (state == Z_OK) {
    size_t before = whole.size();
    // One byte more than may come tells a message that is too long.
    size_t room = std::min(std::max(kRoomMin, before * 2), std::min<size_t>(len_max, INT_MAX - 1) + 1);
    if (room <= before) {
      return Error(grpc::StatusCode::RESOURCE_EXHAUSTED, "a message is longer than " + std::to_string(len_max) + " bytes when it is decompressed");
    }
    whole.resize(room);
    stream.next_out = whole.data() + before;
    stream.avail_out = static_cast<uInt>(room - before);
    state = inflate(&stream, Z_NO_FLUSH);
    whole.resize(room - stream.avail_out);
    if (state == Z_BUF_ERROR || (state == Z_OK && stream.avail_in == 0 && stream.avail_out > 0)) break;
  }
  if (state != Z_STREAM_END || stream.avail_in != 0) {
    return Error(grpc::StatusCode::INTERNAL, "a compressed message is no " + encoding + ": it is cut off, or has other bytes");
  }
  if (whole.size() > len_max) {
    return Error(grpc::StatusCode::RESOURCE_EXHAUSTED, "a message is longer than " + std::to_string(len_max) + " bytes when it is decompressed");
  }
  auto* kept = new std::vector<uint8_t>(std::move(whole));
  bool is_wrapped = Payload::Wrap(kept->data(), kept->size(), [](void* of) { delete static_cast<std::vector<uint8_t>*>(of); }, kept, message);
  return is_wrapped ? grpc::Status::OK : Error(grpc::StatusCode::RESOURCE_EXHAUSTED, "there is no memory for the message");
}

}  // namespace internal
}  // namespace tollfree
