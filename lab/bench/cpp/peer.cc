// The sides `cpp`, `cpp-stock` and `grpc-cpp` of `tollfree-lab bench echo`, told what to do as the programs in C and Go are.
//
//   peer serve -side SIDE -dir DIRECTORY -size LENGTH
//   peer call -side SIDE -address ADDRESS -size LENGTH -inflight COUNT -warm-up 5ns -measure 5ns -calls COUNT
#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <tollfree/stock_channel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "echo.tollfree.h"

using tollfree::bench::v1::Echo;
using tollfree::bench::v1::EchoReply;
using tollfree::bench::v1::EchoRequest;
using tollfree::bench::v1::EchoTollfree;

namespace {

// How long calls took, to the nanosecond up to here; longer ones are counted by their tenths of microseconds.
constexpr uint64_t kExactNs = 100'000;
constexpr uint64_t kCoarseNs = 100;

[[noreturn]] void Fail(const std::string& why) {
  fprintf(stderr, "%s\n", why.c_str());
  exit(1);
}

class Options {
 public:
  Options(int argc, char** argv) {
    for (int at = 2; at + 1 < argc; at += 2) values_[argv[at]] = argv[at + 1];
  }
  const std::string& Text(const std::string& name) const {
    auto found = values_.find(name);
    if (found == values_.end()) Fail(name + " is missing");
    return found->second;
  }
  // A number, whose unit may follow.
  uint64_t Number(const std::string& name) const {
    char* end;
    uint64_t value = strtoull(Text(name).c_str(), &end, 10);
    if (end == Text(name).c_str() || (*end != '\0' && std::string(end) != "ns")) Fail(name + " is " + Text(name));
    return value;
  }

 private:
  std::map<std::string, std::string> values_;
};

class Service final : public Echo::Service {
  grpc::Status Call(grpc::ServerContext*, const EchoRequest* request, EchoReply* reply) override {
    reply->set_body(request->body());
    return grpc::Status::OK;
  }
};

int Serve(const Options& options) {
  Service service;
  bool is_grpc = options.Text("-side") == "grpc-cpp";
  std::string path = options.Text("-dir") + (is_grpc ? "/grpc-cpp.sock" : "/cpp.sock");
  int message_len_max = static_cast<int>(options.Number("-size") + 64);
  std::unique_ptr<grpc::Server> stock;
  tollfree::ServerOptions ours;
  ours.message_len_max = static_cast<size_t>(message_len_max);
  tollfree::Server server(ours);
  std::string address = (is_grpc ? "unix://" : "shm://") + path;
  if (is_grpc) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(message_len_max);
    builder.RegisterService(&service);
    stock = builder.BuildAndStart();
    if (stock == nullptr) Fail("gRPC does not listen at " + address);
  } else {
    grpc::Status status = EchoTollfree::Register(&server, &service);
    if (status.ok()) status = server.Listen(address);
    if (!status.ok()) Fail(status.error_message());
  }
  puts(address.c_str());
  fflush(stdout);
  // The process ends with its input, which the bench holds.
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  _exit(0);
}

std::unique_ptr<Echo::StubInterface> StubOf(const Options& options) {
  const std::string &side = options.Text("-side"), &address = options.Text("-address");
  size_t message_len_max = options.Number("-size") + 64;
  tollfree::ChannelOptions ours;
  ours.message_len_max = message_len_max;
  if (side == "cpp") return EchoTollfree::NewStub(tollfree::CreateChannel(address, ours));
  if (side == "cpp-stock") return Echo::NewStub(tollfree::CreateStockChannel(address, ours));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(message_len_max));
  // Channels of one process share their connections otherwise.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return Echo::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

// Calls in flight of one thread, each with a connection of its own, as those of other sides have.
struct Caller {
  uint64_t from_ns, until_ns, calls, last_ns;
  std::map<uint64_t, uint64_t> coarse;
  std::vector<uint32_t> exact = std::vector<uint32_t>(kExactNs);

  void Record(uint64_t took_ns) {
    if (took_ns < kExactNs) {
      exact[took_ns]++;
    } else {
      coarse[took_ns / kCoarseNs]++;
    }
  }

  void Run(Echo::StubInterface* stub, uint64_t size) {
    EchoRequest request;
    std::string body;
    for (uint64_t at = 0; at < size; at++) body += static_cast<char>(at);
    request.set_body(body);
    uint64_t counted = 0;
    bool is_compared = true;
    for (uint64_t before = tollfree_now_ns();;) {
      EchoReply reply;
      {
        grpc::ClientContext context;
        grpc::Status status = stub->Call(&context, request, &reply);
        if (!status.ok()) Fail("a call ended with " + std::to_string(status.error_code()) + ": " + status.error_message());
      }
      if (reply.body().size() != body.size() || (is_compared && reply.body() != body)) Fail("other bytes came back");
      is_compared = false;
      uint64_t after = tollfree_now_ns();
      if (calls == 0 && after > until_ns) {
        last_ns = until_ns;
        return;
      }
      if (before > from_ns) {
        Record(after - before);
        last_ns = after;
        if (++counted == calls) return;
      }
      before = after;
    }
  }
};

int Call(const Options& options) {
  uint64_t count = options.Number("-inflight"), calls = options.Number("-calls");
  uint64_t from_ns = tollfree_now_ns() + options.Number("-warm-up");
  std::vector<Caller> callers(count);
  std::vector<std::thread> threads;
  for (Caller& caller : callers) {
    caller.from_ns = caller.last_ns = from_ns;
    caller.until_ns = from_ns + options.Number("-measure");
    caller.calls = (calls + count - 1) / count;
    threads.emplace_back([&] { caller.Run(StubOf(options).get(), options.Number("-size")); });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<uint64_t, uint64_t> all;
  uint64_t last_ns = from_ns;
  for (const Caller& caller : callers) {
    last_ns = std::max(last_ns, caller.last_ns);
    for (uint64_t ns = 0; ns < kExactNs; ns++) {
      if (caller.exact[ns] > 0) all[std::max<uint64_t>(ns, 1)] += caller.exact[ns];
    }
    for (const auto& bin : caller.coarse) all[bin.first * kCoarseNs + kCoarseNs / 2] += bin.second;
  }
  printf("{\"elapsed_ns\":%llu,\"latencies\":[", static_cast<unsigned long long>(last_ns - from_ns));
  const char* comma = "";
  for (const auto& bin : all) {
    printf("%s[%llu,%llu]", comma, static_cast<unsigned long long>(bin.first), static_cast<unsigned long long>(bin.second));
    comma = ",";
  }
  puts("]}");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string part = argc > 1 ? argv[1] : "";
  if (part == "serve") return Serve(Options(argc, argv));
  if (part == "call") return Call(Options(argc, argv));
  fprintf(stderr, "usage: peer serve|call -side cpp|cpp-stock|grpc-cpp ...\n");
  return 2;
}
