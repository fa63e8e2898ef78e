// Health and reflection, by their protos' wire format: what any client of theirs sends and understands.
#include <grpcpp/generic/generic_stub.h>
#include <tollfree/health.h>
#include <tollfree/reflection.h>

#include "../src/wire_text.h"
#include "place.h"

namespace tollfree {
namespace tests {

using internal::BufferOfText;
using internal::ForEachField;
using internal::PutNumber;
using internal::PutText;
using internal::TextOfBuffer;

class KnownServices : public ::testing::Test {
 protected:
  void SetUp() override {
    health_ = AddHealth(&server_);
    AddReflection(&server_);
    ASSERT_TRUE(ProbeTollfree::Register(&server_, &service_).ok());
    ASSERT_TRUE(server_.Listen(directory_.address()).ok());
    channel_ = CreateChannel(directory_.address());
  }

  grpc::Status Check(const std::string& name, uint64_t* state) {
    grpc::ClientContext context;
    std::string request;
    PutText(&request, 1, name);
    grpc::ByteBuffer response;
    *state = 0;
    grpc::Status status = internal::UnaryCall(*channel_, "/grpc.health.v1.Health/Check", &context, BufferOfText(request), &response);
    ForEachField(TextOfBuffer(response), [state](uint32_t, uint64_t number, const std::string&) { *state = number; });
    return status;
  }

  Directory directory_;
  BlockingProbe service_;
  std::unique_ptr<grpc::HealthCheckServiceInterface> health_;
  Server server_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(KnownServices, HealthIsCheckedByName) {
  uint64_t state = 0;
  EXPECT_TRUE(Check("", &state).ok());
  EXPECT_EQ(state, 1u);
  EXPECT_EQ(Check("a", &state).error_code(), grpc::StatusCode::NOT_FOUND);
  health_->SetServingStatus("a", false);
  EXPECT_TRUE(Check("a", &state).ok());
  EXPECT_EQ(state, 2u);
  health_->SetServingStatus(true);
  EXPECT_TRUE(Check("a", &state).ok());
  EXPECT_EQ(state, 1u);
  health_->Shutdown();
  health_->SetServingStatus("a", true);
  EXPECT_TRUE(Check("a", &state).ok());
  EXPECT_EQ(state, 2u);
}

TEST_F(KnownServices, HealthIsWatched) {
  grpc::ClientContext context;
  std::string request;
  PutText(&request, 1, "a");
  internal::Reader<grpc::ByteBuffer> reader(*channel_, "/grpc.health.v1.Health/Watch", &context, BufferOfText(request));
  grpc::ByteBuffer response;
  for (uint64_t expected : {3u, 1u, 2u, 1u}) {
    ASSERT_TRUE(reader.Read(&response));
    uint64_t state = 0;
    ForEachField(TextOfBuffer(response), [&state](uint32_t, uint64_t number, const std::string&) { state = number; });
    EXPECT_EQ(state, expected);
    health_->SetServingStatus("a", expected != 1);
  }
  context.TryCancel();
  while (reader.Read(&response)) {
  }
  EXPECT_EQ(reader.Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(KnownServices, ReflectionListsServicesAndFiles) {
  for (std::string version : {"v1", "v1alpha"}) {
    grpc::ClientContext context;
    std::string path = "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo";
    internal::ReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> stream(*channel_, path.c_str(), &context);
    auto ask = [&stream](uint32_t field, const std::string& text, uint32_t answer) {
      std::string request, found;
      PutText(&request, field, text);
      EXPECT_TRUE(stream.Write(BufferOfText(request)));
      grpc::ByteBuffer response;
      EXPECT_TRUE(stream.Read(&response));
      ForEachField(TextOfBuffer(response), [&](uint32_t of, uint64_t, const std::string& value) {
        if (of == answer) found = value;
      });
      return found;
    };
    std::string services = ask(7, "", 6);
    EXPECT_NE(services.find("tollfree.cpp.probe.Probe"), std::string::npos);
    EXPECT_NE(services.find("grpc.health.v1.Health"), std::string::npos);
    std::string file;
    ForEachField(ask(4, "tollfree.cpp.probe.Probe", 4), [&file](uint32_t, uint64_t, const std::string& text) { file = text; });
    google::protobuf::FileDescriptorProto proto;
    ASSERT_TRUE(proto.ParseFromString(file));
    EXPECT_EQ(proto.service(0).method_size(), 4);
    EXPECT_FALSE(ask(3, proto.name(), 4).empty());
    EXPECT_NE(ask(4, "no.Such", 7).find("not known"), std::string::npos);
    EXPECT_FALSE(ask(6, "tollfree.cpp.probe.Ask", 5).empty());
    stream.WritesDone();
    EXPECT_TRUE(stream.Finish().ok());
  }
}

}  // namespace tests
}  // namespace tollfree
