#include "spans.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>

namespace {

constexpr size_t kTraceLen = 16;
constexpr size_t kSpanLen = 8;

std::string RandomBytes(size_t n) {
  thread_local std::random_device device;
  std::string bytes;
  while (bytes.size() < n) bytes.push_back(static_cast<char>(device()));
  return bytes;
}

std::string Hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

// The bytes of lower-case hexadecimal digits; empty where there are others, or all are zero.
std::string Bytes(const std::string& digits) {
  std::string bytes;
  bool is_zero = true;
  for (size_t at = 0; at + 1 < digits.size(); at += 2) {
    int byte = 0;
    for (char digit : {digits[at], digits[at + 1]}) {
      int value = digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
      if (value < 0) return "";
      byte = byte * 16 + value;
    }
    is_zero = is_zero && byte == 0;
    bytes.push_back(static_cast<char>(byte));
  }
  return is_zero ? "" : bytes;
}

uint64_t Now() {
  auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

std::string Variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

void AddAttribute(otlp::Span* span, const char* key, const std::string& value) {
  otlp::KeyValue* attribute = span->add_attributes();
  attribute->set_key(key);
  attribute->mutable_value()->set_string_value(value);
}

}  // namespace

// "00-" trace "-" parent "-" flags: 2, 32, 16 and 2 digits.
SpanContext SpanContext::FromTraceparent(const std::string& text) {
  SpanContext context;
  if (text.size() == 55 && text.compare(0, 3, "00-") == 0 && text[35] == '-' && text[52] == '-') {
    context.trace_id = Bytes(text.substr(3, 2 * kTraceLen));
    context.span_id = Bytes(text.substr(36, 2 * kSpanLen));
    // Bit 0 of the flags is that of the last digit.
    std::string flags = Bytes("1" + text.substr(54));
    context.sampled = !flags.empty() && (flags[0] & 1);
  }
  if (context.trace_id.empty() || context.span_id.empty()) return SpanContext();
  return context;
}

std::string SpanContext::Traceparent() const { return "00-" + Hex(trace_id) + "-" + Hex(span_id) + (sampled ? "-01" : "-00"); }

CallSpan::CallSpan(Exporter* exporter, otlp::Span::Kind kind, const std::string& method, const SpanContext& parent) : exporter_(exporter) {
  context_ = parent;
  if (context_.trace_id.empty()) context_.trace_id = RandomBytes(kTraceLen);
  context_.span_id = RandomBytes(kSpanLen);
  span_.set_trace_id(context_.trace_id);
  span_.set_span_id(context_.span_id);
  span_.set_parent_span_id(parent.span_id);
  span_.set_name(method);
  span_.set_kind(kind);
  span_.set_flags(context_.sampled ? 1 : 0);
  span_.set_start_time_unix_nano(Now());
  AddAttribute(&span_, "rpc.system", "grpc");
}

void CallSpan::End(const grpc::Status& status) {
  span_.set_end_time_unix_nano(Now());
  otlp::KeyValue* code = span_.add_attributes();
  code->set_key("rpc.grpc.status_code");
  code->mutable_value()->set_int_value(status.error_code());
  if (context_.sampled) exporter_->Add(span_);
}

void Exporter::Add(const otlp::Span& span) {
  std::lock_guard<std::mutex> lock(mutex_);
  *spans_.add_spans() = span;
}

grpc::Status Exporter::Flush() {
  otlp::ExportTraceServiceRequest request;
  otlp::ResourceSpans* resource = request.add_resource_spans();
  otlp::KeyValue* name = resource->mutable_resource()->add_attributes();
  name->set_key("service.name");
  name->mutable_value()->set_string_value(Variable("OTEL_SERVICE_NAME", "relay"));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    *resource->add_scope_spans() = std::move(spans_);
    spans_.Clear();
  }
  std::string endpoint = Variable("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317");
  if (endpoint.compare(0, 7, "http://") != 0) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the collector is to be at http://, not " + endpoint);
  auto stub = otlp::TraceService::NewStub(grpc::CreateChannel(endpoint.substr(7), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  otlp::ExportTraceServiceResponse response;
  return stub->Export(&context, request, &response);
}
