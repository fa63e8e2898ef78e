#include <tollfree/reflection.h>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <tollfree/internal/server_methods.h>

#include <set>
#include <string>
#include <vector>

#include "wire_text.h"

namespace tollfree {
namespace internal {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

// Numbers of fields in the requests and responses of reflection.proto.
enum RequestField { kFileByName = 3, kFileOfSymbol = 4, kFileOfExtension = 5, kExtensionNumbers = 6, kListServices = 7 };
enum ResponseField { kValidHost = 1, kOriginalRequest = 2, kFiles = 4, kNumbers = 5, kServices = 6, kError = 7 };

std::string Error(grpc::StatusCode code, const std::string& what) {
  std::string error, field;
  PutNumber(&error, 1, static_cast<uint64_t>(code));
  PutText(&error, 2, what);
  PutText(&field, kError, error);
  return field;
}

// A file and all that it imports, each once.
void PutFiles(const FileDescriptor* file, std::set<const FileDescriptor*>* seen, std::string* to) {
  if (!seen->insert(file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  PutText(to, 1, proto.SerializeAsString());
  for (int at = 0; at < file->dependency_count(); at++) PutFiles(file->dependency(at), seen, to);
}

std::string Files(const FileDescriptor* file, const std::string& what) {
  if (file == nullptr) return Error(grpc::StatusCode::NOT_FOUND, what + " is not known here");
  std::set<const FileDescriptor*> seen;
  std::string files, field;
  PutFiles(file, &seen, &files);
  PutText(&field, kFiles, files);
  return field;
}

std::string Extension(const std::string& request) {
  std::string type;
  uint64_t number = 0;
  ForEachField(request, [&](uint32_t field, uint64_t value, std::string text) {
    if (field == 1) type = std::move(text);
    if (field == 2) number = value;
  });
  const DescriptorPool* pool = DescriptorPool::generated_pool();
  const Descriptor* of = pool->FindMessageTypeByName(type);
  const FieldDescriptor* extension = of == nullptr ? nullptr : pool->FindExtensionByNumber(of, static_cast<int>(number));
  return Files(extension == nullptr ? nullptr : extension->file(), "extension " + std::to_string(number) + " of " + type);
}

std::string ExtensionNumbers(const std::string& type) {
  const DescriptorPool* pool = DescriptorPool::generated_pool();
  const Descriptor* of = pool->FindMessageTypeByName(type);
  if (of == nullptr) return Error(grpc::StatusCode::NOT_FOUND, type + " is not known here");
  std::vector<const FieldDescriptor*> extensions;
  pool->FindAllExtensions(of, &extensions);
  std::string numbers, field;
  PutText(&numbers, 1, type);
  for (const FieldDescriptor* each : extensions) PutNumber(&numbers, 2, static_cast<uint64_t>(each->number()));
  PutText(&field, kNumbers, numbers);
  return field;
}

std::string Services(const Server& server) {
  std::string services, field;
  for (const std::string& name : server.services()) {
    std::string service;
    PutText(&service, 1, name);
    PutText(&services, 1, service);
  }
  PutText(&field, kServices, services);
  return field;
}

std::string Respond(const Server& server, const std::string& request) {
  const DescriptorPool* pool = DescriptorPool::generated_pool();
  std::string host, answer;
  bool is_sound = ForEachField(request, [&](uint32_t field, uint64_t, std::string text) {
    switch (field) {
      case 1: host = text; break;
      case kFileByName: answer = Files(pool->FindFileByName(text), text); break;
      case kFileOfSymbol: answer = Files(pool->FindFileContainingSymbol(text), text); break;
      case kFileOfExtension: answer = Extension(text); break;
      case kExtensionNumbers: answer = ExtensionNumbers(text); break;
      case kListServices: answer = Services(server); break;
      default: break;
    }
  });
  if (!is_sound || answer.empty()) answer = Error(grpc::StatusCode::INVALID_ARGUMENT, "this is no ServerReflectionRequest");
  std::string response;
  PutText(&response, kValidHost, host);
  PutText(&response, kOriginalRequest, request);
  return response + answer;
}

}  // namespace
}  // namespace internal

void AddReflection(Server* server) {
  using namespace internal;
  for (const char* path : {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    std::string name(path + 1);
    server->AddService(name.substr(0, name.find('/')));
    server->AddMethod(path, MakeBidiStreaming<grpc::ByteBuffer, grpc::ByteBuffer>(
                                [server](grpc::ServerContext*, grpc::ServerReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>* stream) {
                                  grpc::ByteBuffer request;
                                  while (stream->Read(&request)) {
                                    if (!stream->Write(BufferOfText(Respond(*server, TextOfBuffer(request))))) break;
                                  }
                                  return grpc::Status::OK;
                                }));
  }
}

}  // namespace tollfree
