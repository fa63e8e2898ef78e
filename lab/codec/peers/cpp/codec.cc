// C++ protobuf's side of `tollfree-lab bench codec`: decodes and encodes one message again and again, and tells how
// long that took. Built once for each schema by build.sh. The lines it speaks are described in
// src/codec/cpp.rs.

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include <time.h>

#include <google/protobuf/arena.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include CODEC_HEADER

namespace pb = google::protobuf;

namespace {

// A message of up to this many bytes is accepted from the pipe.
constexpr std::size_t kLongest = std::size_t{1} << 30;

struct State {
  const pb::Message* prototype = nullptr;
  std::string input;
  std::unique_ptr<pb::Message> reused;
  std::string output;
};

// Parses into an arena whose first block is kept, and empties it; false if the message is refused.
bool DecodeArena(State& state, std::uint64_t count) {
  static std::unique_ptr<char[]> block;
  static std::size_t block_len = 0;
  const std::size_t wanted = 64 * 1024 + 8 * state.input.size();
  if (block_len < wanted) {
    block = std::make_unique<char[]>(wanted);
    block_len = wanted;
  }
  pb::ArenaOptions options;
  options.initial_block = block.get();
  options.initial_block_size = block_len;
  pb::Arena arena(options);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!state.prototype->New(&arena)->ParseFromString(state.input)) return false;
    arena.Reset();
  }
  return true;
}

bool DecodeReused(State& state, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!state.reused->ParseFromString(state.input)) return false;
  }
  return true;
}

bool Encode(State& state, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!state.reused->SerializeToString(&state.output)) return false;
  }
  return true;
}

std::string Load(State& state, const std::string& type, std::size_t len) {
  if (len > kLongest) return "the message is too long";
  state.input.resize(len);
  if (!std::cin.read(state.input.data(), static_cast<std::streamsize>(len))) return "the message breaks off";
  const pb::Descriptor* descriptor = pb::DescriptorPool::generated_pool()->FindMessageTypeByName(type);
  if (descriptor == nullptr) return "no type " + type + " was built in";
  state.prototype = pb::MessageFactory::generated_factory()->GetPrototype(descriptor);
  state.reused.reset(state.prototype->New());
  if (!state.reused->ParseFromString(state.input)) return "it refuses the message";
  return "ok";
}

// What this thread has had of its processor, in nanoseconds.
std::uint64_t ProcessorTime() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u + static_cast<std::uint64_t>(now.tv_nsec);
}

std::string Run(State& state, const std::string& operation, std::uint64_t count) {
  if (state.prototype == nullptr) return "nothing is loaded";
  const std::uint64_t start = ProcessorTime();
  bool done = false;
  if (operation == "decode-arena") {
    done = DecodeArena(state, count);
  } else if (operation == "decode-reused") {
    done = DecodeReused(state, count);
  } else if (operation == "encode") {
    done = Encode(state, count);
  } else {
    return "no operation " + operation;
  }
  const std::uint64_t elapsed = ProcessorTime() - start;
  if (!done) return operation + " failed";
  return std::to_string(elapsed);
}

}  // namespace

int main() {
  pb::LinkMessageReflection<CODEC_TYPE>();
  State state;
  std::string order;
  while (std::cin >> order) {
    std::string name;
    std::uint64_t number = 0;
    if (!(std::cin >> name >> number)) return 1;
    std::cin.get();  // the line's end
    std::cout << (order == "load"  ? Load(state, name, number)
                  : order == "run" ? Run(state, name, number)
                                   : "no order " + order)
              << std::endl;
  }
  return 0;
}
