#include "text/stop_matcher.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <deque>
#include <utility>

namespace octavo {

StopMatcher::StopMatcher(std::span<const std::string> stop, bool include_stop_str_in_output)
    : stop_(stop.begin(), stop.end()), include_stop_string_(include_stop_str_in_output), nodes_(1) {
  for (size_t i = 0; i < stop_.size(); ++i) {
    if (stop_[i].empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("stop[{}]: expected a string that is not empty", i));
    }
    Insert(stop_[i]);
  }
  LinkFallbacks();
}

void StopMatcher::Insert(const std::string& stop) {
  size_t node = 0;
  for (char byte : stop) {
    const auto found = nodes_[node].next.find(byte);
    if (found != nodes_[node].next.end()) {
      node = found->second;
      continue;
    }
    const size_t added = nodes_.size();
    nodes_.push_back(Node{.next = {}, .fallback = 0, .depth = nodes_[node].depth + 1});
    nodes_[node].next.emplace(byte, added);
    node = added;
  }
  nodes_[node].stop = &stop;
}

void StopMatcher::LinkFallbacks() {
  std::deque<size_t> queue = {0};  // breadth first: a fallback is always shallower
  while (!queue.empty()) {
    const size_t node = queue.front();
    queue.pop_front();
    for (const auto& [byte, child] : nodes_[node].next) {
      Node& linked = nodes_[child];
      linked.fallback = node == 0 ? 0 : Step(nodes_[node].fallback, byte);
      if (linked.stop == nullptr) linked.stop = nodes_[linked.fallback].stop;
      queue.push_back(child);
    }
  }
}

size_t StopMatcher::Step(size_t state, char byte) const {
  while (true) {
    const auto found = nodes_[state].next.find(byte);
    if (found != nodes_[state].next.end()) return found->second;
    if (state == 0) return 0;
    state = nodes_[state].fallback;
  }
}

StopMatcher::Result StopMatcher::Push(std::string_view piece) {
  if (match_ != nullptr) return {.text = {}, .stopped = true, .stop_string = *match_};
  for (size_t i = 0; i < piece.size(); ++i) {
    state_ = Step(state_, piece[i]);
    match_ = nodes_[state_].stop;
    if (match_ == nullptr) continue;
    std::string text = std::move(held_).append(piece.substr(0, i + 1));
    held_.clear();
    if (!include_stop_string_) text.resize(text.size() - match_->size());
    return {.text = std::move(text), .stopped = true, .stop_string = *match_};
  }
  std::string text = std::move(held_).append(piece);
  held_ = text.substr(text.size() - nodes_[state_].depth);
  text.resize(text.size() - held_.size());
  return {.text = std::move(text), .stopped = false, .stop_string = {}};
}

std::string StopMatcher::Finish() {
  state_ = 0;
  return std::exchange(held_, {});
}

}  // namespace octavo
