#include <tollfree/internal/bytes.h>

#include <algorithm>
#include <cstdlib>

namespace tollfree {
namespace internal {
namespace {

constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int DigitOf(char digit) {
  if (digit >= 'A' && digit <= 'Z') return digit - 'A';
  if (digit >= 'a' && digit <= 'z') return digit - 'a' + 26;
  if (digit >= '0' && digit <= '9') return digit - '0' + 52;
  if (digit == '+') return 62;
  return digit == '/' ? 63 : -1;
}

}  // namespace

bool Payload::Share(Payload* other) const {
  tollfree_payload share = payload_;
  int number = payload_.buffer.id != 0 ? tollfree_buffer_retain(payload_.buffer, &share.buffer) : tollfree_buffer_copy(payload_.bytes, &share);
  if (number != 0) return false;
  *other = Payload(share);
  if (is_compressed_) other->set_compressed();
  return true;
}

bool Payload::Wrap(const void* data, size_t size, tollfree_release release, void* argument, Payload* payload) {
  tollfree_payload made{};
  if (tollfree_buffer_wrap({static_cast<const uint8_t*>(data), size}, release, argument, &made) != 0) {
    release(argument);
    return false;
  }
  *payload = Payload(made);
  return true;
}

size_t Message::size() const {
  size_t size = payload.size();
  for (const Payload& piece : more) size += piece.size();
  return size;
}

bool Message::Join() {
  if (more.empty()) return true;
  auto* memory = static_cast<uint8_t*>(malloc(size()));
  if (memory == nullptr) return false;
  uint8_t* end = std::copy_n(payload.data(), payload.size(), memory);
  for (const Payload& piece : more) end = std::copy_n(piece.data(), piece.size(), end);
  more.clear();
  return Payload::Wrap(memory, static_cast<size_t>(end - memory), free, memory, &payload);
}

void ReleaseAll(const tollfree_event& event) {
  tollfree_buffer_release(event.payload.buffer);
  for (size_t at = 0; at < event.more_count; at++) tollfree_buffer_release(event.more[at].buffer);
}

bool EndsInBin(const char* name, size_t size) { return size > 4 && std::equal(name + size - 4, name + size, "-bin"); }

std::string EncodeBase64(const std::string& bytes) {
  std::string text;
  text.reserve((bytes.size() * 4 + 2) / 3);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t byte = 0; byte < 3; byte++) {
      group = group << 8 | (byte < count ? static_cast<uint8_t>(bytes[at + byte]) : 0);
    }
    for (size_t digit = 0; digit <= count; digit++) text += kDigits[group >> (18 - 6 * digit) & 63];
  }
  return text;
}

bool DecodeBase64(const char* text, size_t size, std::string* bytes) {
  while (size > 0 && text[size - 1] == '=') size--;
  bytes->clear();
  if (size % 4 == 1) return false;
  bytes->reserve(size * 3 / 4);
  uint32_t group = 0;
  int bits = 0;
  for (size_t at = 0; at < size; at++) {
    int digit = DigitOf(text[at]);
    if (digit < 0) return false;
    group = group << 6 | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      *bytes += static_cast<char>(group >> bits & 255);
    }
  }
  return true;
}

bool MetadataBlock::Put(const std::string& name, const std::string& value) {
  return Append(name, EndsInBin(name.data(), name.size()) ? EncodeBase64(value) : value);
}

bool MetadataBlock::Append(const std::string& name, const std::string& value) {
  // Lengths of a pair take a few bytes; the library says how many.
  size_t len = block_.size();
  block_.resize(len + name.size() + value.size() + 16);
  tollfree_bytes key{reinterpret_cast<const uint8_t*>(name.data()), name.size()};
  tollfree_bytes text{reinterpret_cast<const uint8_t*>(value.data()), value.size()};
  int number = tollfree_metadata_put(reinterpret_cast<uint8_t*>(&block_[0]), block_.size(), &len, key, text);
  block_.resize(len);
  if (number != 0) error_ = "the metadata \"" + name + "\" can't be sent: " + tollfree_error_text();
  return number == 0;
}

}  // namespace internal
}  // namespace tollfree
