// Peers that lie, in each way that the reference's list has: the other clients and servers of a process are served on.
#include "place.h"
#include "process.h"

namespace tollfree {
namespace tests {

class Hostile : public ::testing::Test {
 protected:
  void SetUp() override {
    program_ = ProgramAt("TOLLFREE_HOSTILE");
    if (program_.empty()) GTEST_SKIP() << "TOLLFREE_HOSTILE does not say where tollfree-hostile is: run make cpp";
  }

  std::vector<std::string> NamesOf(const std::string& kind) {
    Process list({program_, "list", kind});
    std::vector<std::string> names;
    for (std::string line; !(line = list.Line()).empty();) names.push_back(line.substr(0, line.find('\t')));
    EXPECT_EQ(list.Wait(20), 0);
    EXPECT_FALSE(names.empty()) << kind;
    return names;
  }

  std::string program_;
  Directory directory_;
};

// Descriptors that this process holds.
int OpenCount() {
  int count = 0;
  for (int fd = 0; fd < 1024; fd++) count += access(("/proc/self/fd/" + std::to_string(fd)).c_str(), F_OK) == 0 ? 1 : 0;
  return count;
}

TEST_F(Hostile, ClientsThatLieHarmNobodyElse) {
  BlockingProbe service;
  Server server;
  ASSERT_TRUE(ProbeTollfree::Register(&server, &service).ok());
  ASSERT_TRUE(server.Listen(directory_.address()).ok());
  auto stub = StubTo(directory_.address(), Calls::kGenerated);
  grpc::ClientContext context;
  auto stream = stub->Chat(&context);
  Answer answer;
  auto goes_on = [&] {
    grpc::ClientContext one;
    EXPECT_TRUE(stub->Unary(&one, Ask(), &answer).ok());
    EXPECT_TRUE(stream->Write(Ask()) && stream->Read(&answer));
  };
  goes_on();
  int open_count = OpenCount();
  for (std::string kind : {"greeting", "client"}) {
    for (const std::string& name : NamesOf(kind)) {
      // The C library looks at the peer's cursor when it needs room for an answer; these clients ask for none.
      if (name.rfind("cursor", 0) == 0) continue;
      Process peer({program_, kind, name, directory_.socket()});
      peer.EndInput();
      std::string said = peer.Rest();
      EXPECT_EQ(peer.Wait(60), 0) << kind << " " << name << ": " << said;
      goes_on();
    }
  }
  for (std::string kind : {"random-greetings", "random-records", "rewriting", "restless"}) {
    Process peer({program_, kind, "7", directory_.socket()});
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    peer.EndInput();
    goes_on();
  }
  // What they had is given back.
  for (int ms = 0; ms < 20'000 && OpenCount() > open_count; ms++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LE(OpenCount(), open_count);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(Hostile, ServersThatLieEndTheirCallsOnly) {
  for (std::string kind : {"welcome", "server"}) {
    for (const std::string& name : NamesOf(kind)) {
      // The C library takes each message at once, and gives its credit back: there is no more than the credit.
      if (name == "more than the credit") continue;
      Directory place;
      Process peer({program_, kind, name, place.socket()});
      ASSERT_EQ(peer.Line(), "ready") << kind << " " << name;
      auto stub = StubTo(place.address(), Calls::kGenerated);
      grpc::ClientContext context;
      Answer answer;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      grpc::Status status = stub->Unary(&context, Ask(), &answer);
      EXPECT_FALSE(status.ok()) << kind << " " << name;
      EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << kind << " " << name;
      peer.EndInput();
    }
  }
}

}  // namespace tests
}  // namespace tollfree
