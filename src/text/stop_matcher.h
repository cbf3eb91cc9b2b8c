// Stop strings in text that arrives in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// Text may be released as soon as no stop string can begin in it any more; the longest tail that
// begins a stop string is held back. How the text is cut into pieces does not change the result:
// the stop string that is complete first wins, and of several that end together the longest.
class StopMatcher {
 public:
  struct Result {
    std::string text;         // may be given out now
    bool stopped = false;     // a stop string was found; later text is dropped
    std::string stop_string;  // the one that was found
  };

  // Throws kInvalidArgument for an empty stop string.
  explicit StopMatcher(std::span<const std::string> stop, bool include_stop_str_in_output = false);
  StopMatcher(StopMatcher&&) = default;
  StopMatcher& operator=(StopMatcher&&) = default;

  // Once stopped, the text of every later result is empty.
  Result Push(std::string_view piece);

  // The text held back, for when the sequence ends for another reason. Empty once stopped.
  std::string Finish();

  bool stopped() const { return match_ != nullptr; }

 private:
  // A trie of the stop strings with Aho-Corasick links: the state is the longest tail of the text
  // that begins a stop string, so each byte costs amortized constant time whatever the strings are.
  struct Node {
    std::map<char, size_t> next;
    size_t fallback = 0;  // the longest proper tail of this node's string that is a node too
    size_t depth = 0;
    const std::string* stop = nullptr;  // the longest stop string that ends here
  };

  void Insert(const std::string& stop);
  void LinkFallbacks();
  size_t Step(size_t state, char byte) const;

  std::vector<std::string> stop_;
  bool include_stop_string_;
  std::vector<Node> nodes_;
  size_t state_ = 0;
  std::string held_;
  const std::string* match_ = nullptr;
};

}  // namespace octavo
