// A server with both kinds of handlers, and clients of each kind.
#ifndef TOLLFREE_TESTS_PLACE_H
#define TOLLFREE_TESTS_PLACE_H

#include <gtest/gtest.h>
#include <stdlib.h>
#include <tollfree/stock_channel.h>

#include <memory>
#include <string>

#include "services.h"

namespace tollfree {
namespace tests {

// A directory of a test's own, with the address of a socket in it.
class Directory {
 public:
  Directory() {
    char path[] = "/tmp/tollfree-cpp-XXXXXX";
    EXPECT_NE(mkdtemp(path), nullptr);
    path_ = path;
  }
  ~Directory() { EXPECT_EQ(system(("rm -rf " + path_).c_str()), 0); }
  std::string address() const { return "shm://" + socket(); }
  std::string socket() const { return path_ + "/s.sock"; }

 private:
  std::string path_;
};

enum class Serves { kBlocking, kReactors };
enum class Calls { kGenerated, kStock };

inline std::unique_ptr<Probe::StubInterface> StubTo(const std::string& address, Calls calls) {
  if (calls == Calls::kStock) return Probe::NewStub(CreateStockChannel(address));
  return ProbeTollfree::NewStub(CreateChannel(address));
}

class Place : public ::testing::TestWithParam<std::tuple<Serves, Calls>> {
 protected:
  void SetUp() override {
    grpc::Status status = std::get<0>(GetParam()) == Serves::kBlocking ? ProbeTollfree::Register(&server_, &blocking_)
                                                                       : ProbeTollfree::Register(&server_, &reactors_);
    ASSERT_TRUE(status.ok()) << status.error_message();
    status = server_.Listen(directory_.address());
    ASSERT_TRUE(status.ok()) << status.error_message();
    stub_ = StubTo(directory_.address(), std::get<1>(GetParam()));
    cancelled_count = 0;
    reactor_count = 0;
  }

  void TearDown() override {
    stub_.reset();
    server_.Shutdown(std::chrono::seconds(10));
    EXPECT_EQ(reactor_count, 0);
  }

  // Waits for what comes soon.
  template <class Condition>
  static bool Soon(Condition condition) {
    for (int ms = 0; ms < 20'000; ms++) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  bool is_stock() const { return std::get<1>(GetParam()) == Calls::kStock; }

  Directory directory_;
  BlockingProbe blocking_;
  ReactorProbe reactors_;
  Server server_;
  std::unique_ptr<Probe::StubInterface> stub_;
};

inline std::string NameOf(const ::testing::TestParamInfo<std::tuple<Serves, Calls>>& info) {
  return std::string(std::get<0>(info.param) == Serves::kBlocking ? "Blocking" : "Reactors") +
         (std::get<1>(info.param) == Calls::kGenerated ? "Generated" : "Stock");
}

#define FOR_ALL_KINDS(Suite)                                                                                                     \
  INSTANTIATE_TEST_SUITE_P(Kinds, Suite,                                                                                         \
                           ::testing::Combine(::testing::Values(Serves::kBlocking, Serves::kReactors),                          \
                                              ::testing::Values(Calls::kGenerated, Calls::kStock)),                             \
                           NameOf)

}  // namespace tests
}  // namespace tollfree

#endif
