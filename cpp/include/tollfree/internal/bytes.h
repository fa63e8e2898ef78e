// Bytes of messages and metadata, as they cross between generated code and the library. Not for programs.
#ifndef TOLLFREE_INTERNAL_BYTES_H
#define TOLLFREE_INTERNAL_BYTES_H

#include <tollfree.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tollfree {
namespace internal {

// A payload that has come, or that is to be sent, with its share in the bytes.
class Payload {
 public:
  Payload() = default;
  // Takes the share.
  explicit Payload(tollfree_payload payload) : payload_(payload) {}
  Payload(Payload&& other) noexcept
      : payload_(std::exchange(other.payload_, tollfree_payload{})), is_compressed_(std::exchange(other.is_compressed_, false)) {}
  Payload& operator=(Payload&& other) noexcept {
    if (this != &other) {
      Release();
      payload_ = std::exchange(other.payload_, tollfree_payload{});
      is_compressed_ = std::exchange(other.is_compressed_, false);
    }
    return *this;
  }
  Payload(const Payload&) = delete;
  Payload& operator=(const Payload&) = delete;
  ~Payload() { Release(); }

  const uint8_t* data() const { return payload_.bytes.data; }
  size_t size() const { return payload_.bytes.len; }
  const tollfree_payload& get() const { return payload_; }
  // The bytes are compressed as the call's encoding says.
  bool is_compressed() const { return is_compressed_; }
  void set_compressed() { is_compressed_ = true; }
  // As a call sends it.
  uint32_t flags() const { return is_compressed_ ? TOLLFREE_FLAG_COMPRESSED : 0; }

  // Another share in the bytes; of bytes without a buffer, a copy. Whether there was memory for that.
  bool Share(Payload* other) const;

  // Memory that is released by `release(argument)` when nobody needs it. Whether there was memory for that; else it is released at once.
  static bool Wrap(const void* data, size_t size, tollfree_release release, void* argument, Payload* payload);

 private:
  void Release() {
    if (payload_.buffer.id != 0) tollfree_buffer_release(payload_.buffer);
    payload_ = tollfree_payload{};
  }

  tollfree_payload payload_{};
  bool is_compressed_ = false;
};

// A message that has come.
struct Message {
  Payload payload;
  // Its pieces behind the first, which lie in the pool or between what does.
  std::vector<Payload> more;
  bool is_compressed = false;
  // Of a compressed one: `grpc-encoding`, and the longest that it may be when it is decompressed, in bytes.
  std::string encoding;
  size_t len_max = 0;

  size_t size() const;
  // Makes one piece of all, by a copy if there are several. Whether there was memory for that.
  bool Join();
};

// Releases what an event brings that nobody takes.
void ReleaseAll(const tollfree_event& event);

// A block of metadata that is built.
class MetadataBlock {
 public:
  // Appends a pair; values of names in -bin are any bytes. Whether gRPC carries it; else `error()` says why not.
  bool Put(const std::string& name, const std::string& value);

  const std::string& error() const { return error_; }
  tollfree_bytes bytes() const { return {reinterpret_cast<const uint8_t*>(block_.data()), block_.size()}; }

 private:
  bool Append(const std::string& name, const std::string& value);

  std::string block_;
  std::string error_;
};

// Calls `each(name, value)` for the pairs of a block. Values of names in -bin are decoded. A value that is no base64 is left out.
template <class Each>
void ForEachPair(tollfree_bytes block, Each each);

bool EndsInBin(const char* name, size_t size);
std::string EncodeBase64(const std::string& bytes);
// Whether it is base64, with or without its padding.
bool DecodeBase64(const char* text, size_t size, std::string* bytes);

template <class Each>
void ForEachPair(tollfree_bytes block, Each each) {
  size_t at = 0;
  tollfree_bytes name{}, value{};
  while (tollfree_metadata_next(block, &at, &name, &value) == 0 && name.data != nullptr) {
    std::string key(reinterpret_cast<const char*>(name.data), name.len);
    const char* text = reinterpret_cast<const char*>(value.data);
    if (!EndsInBin(key.data(), key.size())) {
      each(std::move(key), std::string(text, value.len));
      continue;
    }
    // Several values of a name may stand in one, with commas between.
    for (size_t from = 0; from <= value.len;) {
      size_t to = from;
      while (to < value.len && text[to] != ',') to++;
      std::string bytes;
      if (DecodeBase64(text + from, to - from, &bytes)) each(key, std::move(bytes));
      from = to + 1;
    }
  }
}

}  // namespace internal
}  // namespace tollfree

#endif
