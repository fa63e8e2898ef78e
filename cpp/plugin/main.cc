// protoc-gen-tollfree-cpp: for each file with services, a header beside the one of grpc_cpp_plugin.
//
//   protoc --cpp_out=DIR --grpc_out=DIR --plugin=protoc-gen-grpc=$(which grpc_cpp_plugin) --tollfree-cpp_out=DIR FILE.proto
#include <google/protobuf/compiler/code_generator.h>
#include <google/protobuf/compiler/plugin.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/printer.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <map>
#include <memory>
#include <string>

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using Words = std::map<std::string, std::string>;

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

// As grpc_cpp_plugin names message classes.
std::string ClassOf(const Descriptor* message) {
  const Descriptor* outer = message;
  while (outer->containing_type() != nullptr) outer = outer->containing_type();
  std::string inner = message->full_name().substr(outer->full_name().size());
  return "::" + Replaced(outer->full_name(), ".", "::") + Replaced(inner, ".", "_");
}

std::string Stem(const FileDescriptor* file) {
  const std::string& name = file->name();
  size_t dot = name.rfind(".proto");
  return dot == std::string::npos ? name : name.substr(0, dot);
}

Words WordsOf(const ServiceDescriptor* service, const MethodDescriptor* method) {
  return {{"service", service->name()},
          {"method", method->name()},
          {"path", "/" + service->full_name() + "/" + method->name()},
          {"request", ClassOf(method->input_type())},
          {"response", ClassOf(method->output_type())}};
}

// Each kind of method: what a client's class has for it, and how a service's is served.
struct Kind {
  const char* blocking;
  const char* reactors;
  const char* queues;
  const char* refused;
  const char* handler;
  const char* reactor;
  const char* make;
};

const Kind kUnary = {
    R"(    ::grpc::Status $method$(::grpc::ClientContext* context, const $request$& request, $response$* response) override {
      return ::tollfree::internal::UnaryCall(*channel_, "$path$", context, request, response);
    }
)",
    R"(      void $method$(::grpc::ClientContext* context, const $request$* request, $response$* response, std::function<void(::grpc::Status)> then) override {
        ::tollfree::internal::UnaryFunctionReactor<$response$>::Call(*channel_, "$path$", context, request, response, std::move(then));
      }
      void $method$(::grpc::ClientContext* context, const $request$* request, $response$* response, ::grpc::ClientUnaryReactor* reactor) override {
        ::tollfree::internal::UnaryReactorCall<$response$>::Make(*channel_, "$path$", context, request, response, reactor);
      }
)",
    R"(    ::grpc::ClientAsyncResponseReaderInterface<$response$>* Async$method$Raw(::grpc::ClientContext*, const $request$&, ::grpc::CompletionQueue* queue) override {
      return new ::tollfree::internal::RefusedUnary<$response$>(*channel_, queue);
    }
    ::grpc::ClientAsyncResponseReaderInterface<$response$>* PrepareAsync$method$Raw(::grpc::ClientContext*, const $request$&, ::grpc::CompletionQueue* queue) override {
      return new ::tollfree::internal::RefusedUnary<$response$>(*channel_, queue);
    }
)",
    R"(    void Async$method$(::grpc::ClientContext*, const $request$&, ::grpc::CompletionQueue*) = delete;
    void PrepareAsync$method$(::grpc::ClientContext*, const $request$&, ::grpc::CompletionQueue*) = delete;
)",
    R"(::grpc::ServerContext* context, const Request* request, Response* response) { return service->$method$(context, request, response); })",
    R"(::grpc::CallbackServerContext* context, const Request* request, Response* response) { return service->$method$(context, request, response); })",
    "Unary",
};

const Kind kClientStreaming = {
    R"(    ::grpc::ClientWriterInterface<$request$>* $method$Raw(::grpc::ClientContext* context, $response$* response) override {
      return new ::tollfree::internal::Writer<$request$, $response$>(*channel_, "$path$", context, response);
    }
)",
    R"(      void $method$(::grpc::ClientContext* context, $response$* response, ::grpc::ClientWriteReactor<$request$>* reactor) override {
        ::tollfree::internal::WriteReactorCall<$request$, $response$>::Make(*channel_, "$path$", context, response, reactor);
      }
)",
    R"(    ::grpc::ClientAsyncWriterInterface<$request$>* Async$method$Raw(::grpc::ClientContext*, $response$*, ::grpc::CompletionQueue* queue, void* tag) override {
      return ::tollfree::internal::Begun(new ::tollfree::internal::RefusedWriter<$request$>(*channel_, queue), tag);
    }
    ::grpc::ClientAsyncWriterInterface<$request$>* PrepareAsync$method$Raw(::grpc::ClientContext*, $response$*, ::grpc::CompletionQueue* queue) override {
      return new ::tollfree::internal::RefusedWriter<$request$>(*channel_, queue);
    }
)",
    R"(    void Async$method$(::grpc::ClientContext*, $response$*, ::grpc::CompletionQueue*, void*) = delete;
    void PrepareAsync$method$(::grpc::ClientContext*, $response$*, ::grpc::CompletionQueue*) = delete;
)",
    R"(::grpc::ServerContext* context, ::grpc::ServerReader<Request>* reader, Response* response) { return service->$method$(context, reader, response); })",
    R"(::grpc::CallbackServerContext* context, Response* response) { return service->$method$(context, response); })",
    "ClientStreaming",
};

const Kind kServerStreaming = {
    R"(    ::grpc::ClientReaderInterface<$response$>* $method$Raw(::grpc::ClientContext* context, const $request$& request) override {
      return new ::tollfree::internal::Reader<$response$>(*channel_, "$path$", context, request);
    }
)",
    R"(      void $method$(::grpc::ClientContext* context, const $request$* request, ::grpc::ClientReadReactor<$response$>* reactor) override {
        ::tollfree::internal::ReadReactorCall<$response$>::Make(*channel_, "$path$", context, request, reactor);
      }
)",
    R"(    ::grpc::ClientAsyncReaderInterface<$response$>* Async$method$Raw(::grpc::ClientContext*, const $request$&, ::grpc::CompletionQueue* queue, void* tag) override {
      return ::tollfree::internal::Begun(new ::tollfree::internal::RefusedReader<$response$>(*channel_, queue), tag);
    }
    ::grpc::ClientAsyncReaderInterface<$response$>* PrepareAsync$method$Raw(::grpc::ClientContext*, const $request$&, ::grpc::CompletionQueue* queue) override {
      return new ::tollfree::internal::RefusedReader<$response$>(*channel_, queue);
    }
)",
    R"(    void Async$method$(::grpc::ClientContext*, const $request$&, ::grpc::CompletionQueue*, void*) = delete;
    void PrepareAsync$method$(::grpc::ClientContext*, const $request$&, ::grpc::CompletionQueue*) = delete;
)",
    R"(::grpc::ServerContext* context, const Request* request, ::grpc::ServerWriter<Response>* writer) { return service->$method$(context, request, writer); })",
    R"(::grpc::CallbackServerContext* context, const Request* request) { return service->$method$(context, request); })",
    "ServerStreaming",
};

const Kind kBidiStreaming = {
    R"(    ::grpc::ClientReaderWriterInterface<$request$, $response$>* $method$Raw(::grpc::ClientContext* context) override {
      return new ::tollfree::internal::ReaderWriter<$request$, $response$>(*channel_, "$path$", context);
    }
)",
    R"(      void $method$(::grpc::ClientContext* context, ::grpc::ClientBidiReactor<$request$, $response$>* reactor) override {
        ::tollfree::internal::BidiReactorCall<$request$, $response$>::Make(*channel_, "$path$", context, reactor);
      }
)",
    R"(    ::grpc::ClientAsyncReaderWriterInterface<$request$, $response$>* Async$method$Raw(::grpc::ClientContext*, ::grpc::CompletionQueue* queue, void* tag) override {
      return ::tollfree::internal::Begun(new ::tollfree::internal::RefusedReaderWriter<$request$, $response$>(*channel_, queue), tag);
    }
    ::grpc::ClientAsyncReaderWriterInterface<$request$, $response$>* PrepareAsync$method$Raw(::grpc::ClientContext*, ::grpc::CompletionQueue* queue) override {
      return new ::tollfree::internal::RefusedReaderWriter<$request$, $response$>(*channel_, queue);
    }
)",
    R"(    void Async$method$(::grpc::ClientContext*, ::grpc::CompletionQueue*, void*) = delete;
    void PrepareAsync$method$(::grpc::ClientContext*, ::grpc::CompletionQueue*) = delete;
)",
    R"(::grpc::ServerContext* context, ::grpc::ServerReaderWriter<Response, Request>* stream) { return service->$method$(context, stream); })",
    R"(::grpc::CallbackServerContext* context) { return service->$method$(context); })",
    "BidiStreaming",
};

const Kind& KindOf(const MethodDescriptor* method) {
  if (method->client_streaming()) return method->server_streaming() ? kBidiStreaming : kClientStreaming;
  return method->server_streaming() ? kServerStreaming : kUnary;
}

const char* ReactorMaker(const Kind& kind) {
  if (&kind == &kUnary) return "MakeUnaryReactor";
  if (&kind == &kClientStreaming) return "MakeReadReactor";
  return &kind == &kServerStreaming ? "MakeWriteReactor" : "MakeBidiReactor";
}

class Printer {
 public:
  explicit Printer(google::protobuf::io::ZeroCopyOutputStream* stream) : printer_(stream, '$') {}

  void Print(const Words& words, const std::string& text) { printer_.Print(words, text.c_str()); }

  void PrintClient(const ServiceDescriptor* service) {
    Words words{{"service", service->name()}};
    Print(words, R"(  // A client's calls over a Tollfree channel. Any thread may use it.
  class Stub final : public $service$::StubInterface {
   public:
    explicit Stub(std::shared_ptr<::tollfree::Channel> channel) : channel_(std::move(channel)) {}

)");
    for (int at = 0; at < service->method_count(); at++) {
      const MethodDescriptor* method = service->method(at);
      if (&KindOf(method) == &kUnary) Print(WordsOf(service, method), KindOf(method).blocking);
      // Tollfree does not serve completion queues.
      Print(WordsOf(service, method), KindOf(method).refused);
    }
    Print(words, R"(
    class async final : public $service$::StubInterface::async_interface {
     public:
)");
    for (int at = 0; at < service->method_count(); at++) Print(WordsOf(service, service->method(at)), KindOf(service->method(at)).reactors);
    Print(words, R"(
     private:
      friend class Stub;
      explicit async(const std::shared_ptr<::tollfree::Channel>& channel) : channel_(channel) {}
      const std::shared_ptr<::tollfree::Channel> channel_;
    };
    class async* async() override { return &async_; }

   private:
)");
    for (int at = 0; at < service->method_count(); at++) {
      const MethodDescriptor* method = service->method(at);
      if (&KindOf(method) != &kUnary) Print(WordsOf(service, method), KindOf(method).blocking);
      Print(WordsOf(service, method), KindOf(method).queues);
    }
    Print(words, R"(
    const std::shared_ptr<::tollfree::Channel> channel_;
    class async async_{channel_};
  };

  static std::unique_ptr<Stub> NewStub(const std::shared_ptr<::tollfree::Channel>& channel) { return std::make_unique<Stub>(channel); }

)");
  }

  void PrintMethod(const ServiceDescriptor* service, const MethodDescriptor* method) {
    const Kind& kind = KindOf(method);
    Words words = WordsOf(service, method);
    words["make"] = kind.make;
    words["reactor"] = ReactorMaker(kind);
    Print(words, R"(  static void Add$method$(::tollfree::internal::MethodList* methods, $service$::Service* service) {
    using Request = $request$;
    using Response = $response$;
    methods->Add("$path$", ::tollfree::internal::Make$make$<Request, Response>([service]()");
    Print(words, kind.handler);
    Print(words, R"(), false);
  }
)");
    for (bool is_raw : {false, true}) {
      words["raw"] = is_raw ? "Raw" : "";
      if (is_raw) words["request"] = words["response"] = "::grpc::ByteBuffer";
      Print(words, R"(  template <class Base>
  static void Add$method$(::tollfree::internal::MethodList* methods, $service$::With$raw$CallbackMethod_$method$<Base>* service) {
    using Request = $request$;
    using Response = $response$;
    methods->Add("$path$", ::tollfree::internal::$reactor$<Request, Response>([service]()");
      Print(words, kind.reactor);
      Print(words, R"(), true);
  }
)");
    }
    std::vector<std::string> refused = {"AsyncMethod", "RawMethod", "GenericMethod"};
    if (&kind == &kUnary) refused.push_back("StreamedUnaryMethod");
    if (&kind == &kServerStreaming) refused.push_back("SplitStreamingMethod");
    for (const std::string& each : refused) {
      words["refused"] = each;
      Print(words, R"(  template <class Base>
  static void Add$method$(::tollfree::internal::MethodList*, $service$::With$refused$_$method$<Base>*) {
    static_assert(::tollfree::internal::AlwaysFalse<Base>::value,
                  "Tollfree serves services with blocking handlers and with reactors: not With$refused$_$method$");
  }
)");
    }
  }

  void PrintService(const ServiceDescriptor* service) {
    Words words{{"service", service->name()}, {"name", service->full_name()}};
    Print(words, "\n// $service$ over Tollfree: its clients, and its services as grpc_cpp_plugin has them.\nclass $service$Tollfree final {\n public:\n");
    PrintClient(service);
    Print(words, R"(  // Has a server serve a service, which stays until the server is shut down. Pass it by its own type: its methods may block, or return
  // reactors, each by itself. INVALID_ARGUMENT: a base class hides which they do.
  template <class Implementation>
  static ::grpc::Status Register(::tollfree::Server* server, Implementation* service) {
    ::tollfree::internal::MethodList methods(server);
)");
    for (int at = 0; at < service->method_count(); at++) Print({{"method", service->method(at)->name()}}, "    Add$method$(&methods, service);\n");
    Print(words, "    return methods.Register(\"$name$\", *service);\n  }\n\n private:\n");
    for (int at = 0; at < service->method_count(); at++) PrintMethod(service, service->method(at));
    Print(words, "};\n");
  }

 private:
  google::protobuf::io::Printer printer_;
};

class Generator final : public google::protobuf::compiler::CodeGenerator {
 public:
  bool Generate(const FileDescriptor* file, const std::string& parameter, google::protobuf::compiler::GeneratorContext* context,
                std::string* error) const override {
    if (!parameter.empty()) {
      *error = "protoc-gen-tollfree-cpp takes no parameter, and got " + parameter;
      return false;
    }
    if (file->service_count() == 0) return true;
    std::string stem = Stem(file);
    std::unique_ptr<google::protobuf::io::ZeroCopyOutputStream> stream(context->Open(stem + ".tollfree.h"));
    Printer printer(stream.get());
    Words words{{"file", file->name()}, {"stem", stem}, {"guard", "TOLLFREE_" + Guard(stem)}};
    printer.Print(words, R"(// Generated by protoc-gen-tollfree-cpp from $file$. Do not change it.
#ifndef $guard$
#define $guard$

#include <tollfree/internal/generated.h>

#include <functional>
#include <memory>
#include <utility>

#include "$stem$.grpc.pb.h"
)");
    const std::string& package = file->package();
    if (!package.empty()) printer.Print({{"package", Replaced(package, ".", "::")}}, "\nnamespace $package$ {\n");
    for (int at = 0; at < file->service_count(); at++) printer.PrintService(file->service(at));
    if (!package.empty()) printer.Print({{"package", Replaced(package, ".", "::")}}, "\n}  // namespace $package$\n");
    printer.Print({}, "\n#endif\n");
    return true;
  }

  uint64_t GetSupportedFeatures() const override { return FEATURE_PROTO3_OPTIONAL; }

 private:
  static std::string Guard(const std::string& stem) {
    std::string guard;
    for (char each : stem) guard += (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || (each >= '0' && each <= '9') ? each : '_';
    return guard + "_H";
  }
};

}  // namespace

int main(int argc, char** argv) {
  Generator generator;
  return google::protobuf::compiler::PluginMain(argc, argv, &generator);
}
