// A learner of the paper: it learns rows, and can revert those of the current call.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "row_loops.hpp"

namespace robustfd {

// An array of a state, with its name and shape. A state lists its arrays once; snapshots and undoing follow.
struct Part {
    const char* name;
    std::variant<double*, std::int32_t*, std::uint8_t*> data;
    std::vector<Index> shape;
    bool by_feature;               // whether the first axis counts features
    std::shared_ptr<void> memory;  // keeps the numbers alive

    template <class T> Part(const char* name, const Array<T>& array, std::vector<Index> shape, bool by_feature = false)
        : name(name), data(array.data()), shape(std::move(shape)), by_feature(by_feature), memory(array.memory()) {}
};

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

// The methods without blocks: ADAGRAD, gradient descent, RP-SON and Oja-SON, whose Y the caller fills.
class RowModel final : public Learner {
  public:
    RowModel(Method method, const PaperSettings& settings, Index d, Index m);

    Index features() const override { return d; }
    std::vector<Part> parts() override;
    Index learn(const Rows& rows, const Batch& batch, const double* normal) override;
    // A row changes the numbers of its own features and those that belong to no feature. Only the former can be many,
    // so only those of the rows are stored.
    void begin() override;
    void commit() override;
    void rollback() override;
    int extreme() const override { return extreme_ ? 2 : 0; }
    void store_all();  // before a change of all features

    const Method method;
    const PaperSettings settings;
    const Index d, m;  // m: rows of the sketch, 0 for the first-order methods
    Index seen = 0;    // rows learned; ADAGRAD does not count them

  private:
    void store(const Rows& rows);
    Array<double> v_, sums_, basis_, c_, square_, scratch_;
    // What `rollback` needs: the numbers that belong to no feature, then those of `features_`, then all the others.
    bool active_ = false, has_all_ = false, extreme_ = false;
    Index seen_before_ = 0;
    std::vector<double> before_;
    std::vector<std::int32_t> features_;
};

}  // namespace robustfd
