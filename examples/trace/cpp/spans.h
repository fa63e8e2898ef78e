// Spans of calls, as W3C's Trace Context and OTLP have them: for programs without OpenTelemetry's library.
#ifndef TRACE_SPANS_H
#define TRACE_SPANS_H

#include <grpcpp/support/status.h>

#include <memory>
#include <mutex>
#include <string>

#include "otlp.grpc.pb.h"

namespace otlp = opentelemetry::proto::collector::trace::v1;

// Which trace a span is of, and which span it is: what `traceparent` says.
struct SpanContext {
  std::string trace_id;
  std::string span_id;
  bool sampled = true;

  // Of a `traceparent` that has come. What is no `traceparent` begins a trace.
  static SpanContext FromTraceparent(const std::string& text);
  std::string Traceparent() const;
};

class Exporter;

// A span of one end of a call, from its construction to `End`.
class CallSpan {
 public:
  CallSpan(Exporter* exporter, otlp::Span::Kind kind, const std::string& method, const SpanContext& parent);

  const SpanContext& context() const { return context_; }

  void End(const grpc::Status& status);

 private:
  Exporter* const exporter_;
  SpanContext context_;
  otlp::Span span_;
};

// Keeps spans, and sends them to the collector at OTEL_EXPORTER_OTLP_ENDPOINT. Any thread may add some.
class Exporter {
 public:
  void Add(const otlp::Span& span);

  // Sends what was added. An error says that the collector did not take it within ten seconds.
  grpc::Status Flush();

 private:
  std::mutex mutex_;
  otlp::ScopeSpans spans_;
};

#endif
