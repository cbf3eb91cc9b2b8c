// Expects a call to throw octavo::Error with a code and a message that says certain things.
#pragma once

#include <gtest/gtest.h>
#include <octavo/error.h>

#include <string>
#include <vector>

namespace octavo::testing {

template <typename Call>
void ExpectError(ErrorCode code, const std::vector<std::string>& parts, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "no error, expected one that says: " << ::testing::PrintToString(parts);
  } catch (const Error& error) {
    EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "the message\n  " << error.what() << "\ndoes not say\n  " << part;
    }
  }
}

}  // namespace octavo::testing
