// Programs of the reference, as other processes: TOLLFREE_INTEROP and TOLLFREE_HOSTILE say where they are.
#ifndef TOLLFREE_TESTS_PROCESS_H
#define TOLLFREE_TESTS_PROCESS_H

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace tollfree {
namespace tests {

// Its input is held, its output is read. It ends with the input, or is killed.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    int input[2], output[2];
    EXPECT_EQ(pipe(input), 0);
    EXPECT_EQ(pipe(output), 0);
    std::vector<char*> words;
    for (std::string& each : arguments) words.push_back(&each[0]);
    words.push_back(nullptr);
    child_ = fork();
    if (child_ == 0) {
      dup2(input[0], 0);
      dup2(output[1], 1);
      for (int fd : {input[0], input[1], output[0], output[1]}) close(fd);
      execv(words[0], words.data());
      _exit(127);
    }
    close(input[0]);
    close(output[1]);
    input_ = input[1];
    output_ = output[0];
  }
  ~Process() {
    EndInput();
    if (child_ > 0) {
      kill(child_, SIGKILL);
      Wait(10);
    }
    close(output_);
  }

  void EndInput() {
    if (input_ >= 0) close(input_);
    input_ = -1;
  }
  // What it prints, up to a line's end or its own.
  std::string Line() {
    std::string line;
    char byte;
    while (read(output_, &byte, 1) == 1 && byte != '\n') line += byte;
    return line;
  }
  std::string Rest() {
    std::string rest;
    char bytes[4096];
    for (ssize_t len; (len = read(output_, bytes, sizeof bytes)) > 0;) rest.append(bytes, static_cast<size_t>(len));
    return rest;
  }
  // Its exit code, -1 if it has not ended within so many seconds or was killed.
  int Wait(int seconds) {
    for (int ms = 0; ms < seconds * 1'000; ms++) {
      int status;
      if (waitpid(child_, &status, WNOHANG) == child_) {
        child_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return -1;
  }

 private:
  pid_t child_ = -1;
  int input_ = -1, output_ = -1;
};

inline std::string ProgramAt(const char* variable) {
  const char* path = getenv(variable);
  return path == nullptr ? "" : path;
}

}  // namespace tests
}  // namespace tollfree

#endif
