// A learner of the paper: it learns rows, and can revert those of the current call.
#pragma once

#include "parts.hpp"
#include "rows.hpp"

namespace robustfd {

class Learner {
  public:
    virtual ~Learner() = default;
    virtual Index features() const = 0;
    virtual std::vector<Part> parts() = 0;

    // Learn from rows; return the number of rows before an overflow. `normal` are the random numbers of RP-SON, m for
    // each row.
    virtual Index learn(const Rows& rows, const Batch& batch, const double* normal) = 0;

    // All rows of a call, or none: `rollback` reverts everything since `begin`.
    virtual void begin() = 0;
    virtual void commit() = 0;
    virtual void rollback() = 0;
    // Since `begin`: 0 if all numbers were far from overflow, 1 if ordinary rows led to huge numbers, 2 if rows are
    // huge or tiny themselves. If not 0, the caller must check the state before `commit`.
    virtual int extreme() const = 0;

  protected:
    Learner() = default;
    Learner(const Learner&) = default;
};

// Learn a few rows with weights of 1, or return false and change nothing. It does so for all rows that need a closer
// look, including those with numbers that are not finite.
bool learn_few(Learner& learner, const Rows& rows, const Batch& batch, const double* normal);

constexpr Index FEW = 8;                 // the largest number of rows for `learn_few`
constexpr double LARGEST_INPUT = 1e150;  // squares of larger numbers can overflow

}  // namespace robustfd
