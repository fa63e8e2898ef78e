// Compressed messages, by the settings of contexts, channels and servers.
#include <gtest/gtest.h>
#include <tollfree/internal/compression.h>

#include <optional>

#include "place.h"
#include "services.h"

namespace tollfree {
namespace tests {
namespace {

constexpr size_t kLong = 1 << 20;

// What its last call came with, and what it answers with.
class Compressing : public BlockingProbe {
 public:
  grpc::Status Unary(grpc::ServerContext* context, const Ask* ask, Answer* answer) override {
    auto found = context->client_metadata().find("grpc-encoding");
    came_as = found == context->client_metadata().end() ? "" : std::string(found->second.data(), found->second.size());
    if (answers_as.has_value()) context->set_compression_algorithm(*answers_as);
    answer->set_body(ask->body());
    return grpc::Status::OK;
  }

  std::string came_as;
  std::optional<grpc_compression_algorithm> answers_as;
};

std::unique_ptr<Server> Serve(Compressing* service, const std::string& address) {
  auto server = std::make_unique<Server>();
  EXPECT_TRUE(ProbeTollfree::Register(server.get(), service).ok());
  EXPECT_TRUE(server->Listen(address).ok());
  return server;
}

// How its answer was sent: the value of grpc-encoding.
std::string CallWith(Probe::StubInterface* stub, std::optional<grpc_compression_algorithm> encoding, const std::string& body) {
  grpc::ClientContext context;
  if (encoding.has_value()) context.set_compression_algorithm(*encoding);
  Ask ask;
  Answer answer;
  ask.set_body(body);
  grpc::Status status = stub->Unary(&context, ask, &answer);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer.body(), body);
  auto found = context.GetServerInitialMetadata().find("grpc-encoding");
  return found == context.GetServerInitialMetadata().end() ? "" : std::string(found->second.data(), found->second.size());
}

TEST(Compression, ContextsOfBothSidesChooseIt) {
  for (Calls calls : {Calls::kGenerated, Calls::kStock}) {
    Directory directory;
    Compressing service;
    auto server = Serve(&service, directory.address());
    auto stub = StubTo(directory.address(), calls);
    for (const std::string& body : {std::string(), std::string("short"), std::string(kLong, 'x')}) {
      service.answers_as.reset();
      EXPECT_EQ(CallWith(stub.get(), std::nullopt, body), "");
      EXPECT_EQ(service.came_as, "");
      EXPECT_EQ(CallWith(stub.get(), GRPC_COMPRESS_GZIP, body), "");
      EXPECT_EQ(service.came_as, "gzip");
      service.answers_as = GRPC_COMPRESS_DEFLATE;
      EXPECT_EQ(CallWith(stub.get(), GRPC_COMPRESS_GZIP, body), "deflate");
      EXPECT_EQ(CallWith(stub.get(), GRPC_COMPRESS_NONE, body), "deflate");
      EXPECT_EQ(service.came_as, "");
      // A client that says nothing takes nothing.
      EXPECT_EQ(CallWith(stub.get(), std::nullopt, body), "");
    }
  }
}

TEST(Compression, EachMessageOfAStreamIsCompressed) {
  BlockingProbe blocking;
  ReactorProbe reactors;
  for (bool reacts : {false, true}) {
    Directory directory;
    ServerOptions ours;
    ours.compression_algorithm = GRPC_COMPRESS_DEFLATE;
    Server server(ours);
    ASSERT_TRUE((reacts ? ProbeTollfree::Register(&server, &reactors) : ProbeTollfree::Register(&server, &blocking)).ok());
    ASSERT_TRUE(server.Listen(directory.address()).ok());
    ChannelOptions options;
    options.compression_algorithm = GRPC_COMPRESS_GZIP;
    auto stub = ProbeTollfree::NewStub(CreateChannel(directory.address(), options));
    grpc::ClientContext context;
    auto stream = stub->Chat(&context);
    for (size_t size : {0u, 10u, 1u << 20}) {
      Ask ask;
      Answer answer;
      ask.set_body(std::string(size, 'x'));
      ASSERT_TRUE(stream->Write(ask, grpc::WriteOptions()));
      ASSERT_TRUE(stream->Read(&answer));
      EXPECT_EQ(answer.body().size(), size);
    }
    EXPECT_TRUE(stream->WritesDone());
    EXPECT_TRUE(stream->Finish().ok());
    auto found = context.GetServerInitialMetadata().find("grpc-encoding");
    ASSERT_NE(found, context.GetServerInitialMetadata().end());
    EXPECT_EQ(found->second, "deflate");
  }
}

TEST(Compression, ChannelsAndServersHaveADefault) {
  Directory directory;
  Compressing service;
  ServerOptions ours;
  ours.compression_algorithm = GRPC_COMPRESS_GZIP;
  Server server(ours);
  ASSERT_TRUE(ProbeTollfree::Register(&server, &service).ok());
  ASSERT_TRUE(server.Listen(directory.address()).ok());
  ChannelOptions options;
  options.compression_algorithm = GRPC_COMPRESS_DEFLATE;
  auto stub = ProbeTollfree::NewStub(CreateChannel(directory.address(), options));
  EXPECT_EQ(CallWith(stub.get(), std::nullopt, std::string(kLong, 'x')), "gzip");
  EXPECT_EQ(service.came_as, "deflate");
  service.answers_as = GRPC_COMPRESS_NONE;
  EXPECT_EQ(CallWith(stub.get(), GRPC_COMPRESS_NONE, std::string(kLong, 'x')), "");
  EXPECT_EQ(service.came_as, "");
}

TEST(Compression, AMessageThatIsTooLongOnceItIsDecompressedEndsItsCall) {
  Directory directory;
  Compressing service;
  auto server = Serve(&service, directory.address());
  ChannelOptions options;
  options.compression_algorithm = GRPC_COMPRESS_GZIP;
  auto stub = ProbeTollfree::NewStub(CreateChannel(directory.address(), options));
  grpc::ClientContext context;
  Ask ask;
  Answer answer;
  ask.set_body(std::string(64 << 20, 'x'));
  grpc::Status status = stub->Unary(&context, ask, &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_NE(status.error_message().find("decompressed"), std::string::npos) << status.error_message();
}

internal::Payload PayloadOf(const std::string& bytes) {
  tollfree_payload made{};
  tollfree_bytes from{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  EXPECT_EQ(tollfree_buffer_copy(from, &made), 0);
  return internal::Payload(made);
}

TEST(Compression, BytesThatAreNoneAreRefused) {
  std::string bytes(5000, 'y');
  for (auto encoding : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    internal::Payload packed = PayloadOf(bytes);
    internal::Compress(encoding, &packed);
    ASSERT_TRUE(packed.is_compressed());
    ASSERT_LT(packed.size(), 200u);
    std::string text(reinterpret_cast<const char*>(packed.data()), packed.size());
    auto code = [&](const std::string& from, const char* name, size_t len_max) {
      internal::Payload payload = PayloadOf(from);
      grpc::Status status = internal::Decompress(name, len_max, &payload);
      if (status.ok()) {
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(payload.data()), payload.size()), bytes);
      }
      return status.error_code();
    };
    const char* name = internal::NameOf(encoding);
    EXPECT_EQ(code(text, name, 5000), grpc::StatusCode::OK);
    EXPECT_EQ(code(text, name, 4999), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(code(text, "identity", 5000), grpc::StatusCode::INTERNAL);
    EXPECT_EQ(code(text, "br", 5000), grpc::StatusCode::INTERNAL);
    EXPECT_EQ(code(text + "z", name, 5000), grpc::StatusCode::INTERNAL);
    EXPECT_EQ(code("", name, 5000), grpc::StatusCode::INTERNAL);
    for (size_t cut = 1; cut < text.size(); cut++) EXPECT_EQ(code(text.substr(0, cut), name, 5000), grpc::StatusCode::INTERNAL) << cut;
  }
  // What does not get shorter goes as it is.
  internal::Payload random = PayloadOf("q");
  internal::Compress(GRPC_COMPRESS_GZIP, &random);
  EXPECT_FALSE(random.is_compressed());
}

}  // namespace
}  // namespace tests
}  // namespace tollfree
