// The few messages of health and reflection, by protobuf's wire format: code generated from their protos would clash with a program's own.
#ifndef TOLLFREE_SRC_WIRE_TEXT_H
#define TOLLFREE_SRC_WIRE_TEXT_H

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <string>

namespace tollfree {
namespace internal {

inline void PutNumber(std::string* to, uint32_t field, uint64_t value) {
  for (uint64_t rest : {static_cast<uint64_t>(field) << 3, value}) {
    while (rest >= 0x80) {
      *to += static_cast<char>(rest | 0x80);
      rest >>= 7;
    }
    *to += static_cast<char>(rest);
  }
}

inline void PutText(std::string* to, uint32_t field, const std::string& text) {
  std::string head;
  PutNumber(&head, field, text.size());
  head[0] = static_cast<char>(head[0] | 2);
  *to += head + text;
}

// Calls `each(field, number, text)` for the fields of a message, with a text for those of length and bytes. Whether it is one.
template <class Each>
bool ForEachField(const std::string& message, Each each) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size()));
  using Format = google::protobuf::internal::WireFormatLite;
  for (uint32_t tag = input.ReadTag(); tag != 0; tag = input.ReadTag()) {
    uint64_t number = 0;
    uint32_t len = 0;
    std::string text;
    switch (Format::GetTagWireType(tag)) {
      case Format::WIRETYPE_VARINT:
        if (!input.ReadVarint64(&number)) return false;
        break;
      case Format::WIRETYPE_LENGTH_DELIMITED:
        if (!input.ReadVarint32(&len) || !input.ReadString(&text, static_cast<int>(len))) return false;
        break;
      default:
        if (!Format::SkipField(&input, tag)) return false;
        continue;
    }
    each(static_cast<uint32_t>(Format::GetTagFieldNumber(tag)), number, text);
  }
  return input.ConsumedEntireMessage();
}

inline std::string TextOfBuffer(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.Valid() || !buffer.DumpToSingleSlice(&slice).ok()) return "";
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

inline grpc::ByteBuffer BufferOfText(const std::string& text) {
  grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace internal
}  // namespace tollfree

#endif
