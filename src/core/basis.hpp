// w and B of the Newton methods: for every feature its weight and its entries in the rows of B. Dense rows have a plain
// array, wide sparse rows the runs of run.hpp.
#pragma once

#include <memory>

#include "block.hpp"
#include "parts.hpp"
#include "run.hpp"

namespace robustfd {

class Basis {
  public:
    virtual ~Basis() = default;
    virtual std::unique_ptr<Basis> clone() const = 0;
    virtual Index features() const = 0;
    virtual std::vector<Part> parts() = 0;

    // Add rows done to done + count - 1 of x to the block: their products with w and B, and with the rows of the block.
    virtual void add(const Block& block, const Rows& x, Index done, Index count) = 0;
    // Apply the change at the end of a block.
    virtual void change(const Block& block, const Change& change) = 0;
    // Fill `out` with of_w w + coef_b B + coef_x X, for some features, or for all if there are none.
    virtual void combine(double of_w, const double* coef_b, Span<const double> coef_x,
                         Span<const std::int32_t> features, double* out) = 0;
    virtual void multiply_weights(double factor) = 0;  // the stored w

    // As in learner.hpp; the block has `filled` rows. Afterwards rows are appended until `change`. `store_all` prepares
    // for any other change.
    virtual void begin(Index filled) = 0;
    virtual void store_all() = 0;
    virtual void commit() = 0;
    virtual void rollback() = 0;
};

class DenseBasis final : public Basis {
  public:
    DenseBasis(Index d, Index m, Index rows);
    std::unique_ptr<Basis> clone() const override { return std::make_unique<DenseBasis>(*this); }
    Index features() const override { return d_; }
    std::vector<Part> parts() override;
    void add(const Block& block, const Rows& x, Index done, Index count) override;
    void change(const Block& block, const Change& change) override;
    void combine(double of_w, const double* coef_b, Span<const double> coef_x, Span<const std::int32_t> features,
                 double* out) override;
    void multiply_weights(double factor) override;
    void begin(Index filled) override;
    void store_all() override;
    void commit() override;
    void rollback() override;

  private:
    Matrix<double> basis() const { return {basis_.data(), q_, d_}; }
    Index d_, q_, rows_;
    Array<double> basis_, buffer_, strip_;  // (q, d): w and B; (rows, d): rows of the block; a strip of features
    const double* block_rows_ = nullptr;    // the rows of the block: in the buffer, or in the caller's batch
    void store_rows();
    bool active_ = false, stored_ = false, has_rows_ = false;
    Index filled_before_ = 0;
    Stored before_, rows_before_;
};

class SparseBasis final : public Basis {
  public:
    SparseBasis(Index d, Index m, Index rows, Index run_rows);  // run_rows: the rows of a run, at least `rows`
    std::unique_ptr<Basis> clone() const override { return std::make_unique<SparseBasis>(*this); }
    Index features() const override { return d_; }
    std::vector<Part> parts() override;
    void add(const Block& block, const Rows& x, Index done, Index count) override;
    void change(const Block& block, const Change& change) override;
    void combine(double of_w, const double* coef_b, Span<const double> coef_x, Span<const std::int32_t> features,
                 double* out) override;
    void multiply_weights(double factor) override;
    void begin(Index filled) override;
    void store_all() override;
    void commit() override;
    void rollback() override;

    void widen(Index d);
    const RunState& state() const { return state_; }
    Index left() const { return run_rows_ - state_.rows; }  // rows for which the run has space

    // The entries of the run in the order of rows, for snapshots, and the reverse. `restore` expects valid numbers, and
    // a new basis; `rows` of the run have entries, the last of which belong to the block.
    struct Entries {
        std::vector<double> value;
        std::vector<std::int32_t> row, where;
    };
    Entries entries();
    void restore(Index number, Index rows, Span<const std::int32_t> feature, const double* gathered,
                 Span<const double> value, const std::int32_t* row, const std::int32_t* where);

  private:
    // What `rollback` needs, in the order in which it can change.
    struct Before {
        bool active = false, has_coefficients = false, has_run = false, has_all = false;
        Index d = 0;
        RunState state;
        Stored coefficients, gathered, value, rows_of_features, all;
        std::vector<std::int32_t> feature, latest, used, row, before, features;
        std::vector<std::uint8_t> ages, all_ages;
        Array<std::uint8_t> is_stored;  // (d): whether a feature is among `features`
        std::shared_ptr<const SparseBasis> whole;  // after `store_all`, instead of all the others
    };

    Run run();
    void reserve(Index entries);
    void end_run();
    void store_run();
    void store_features();
    void store_all_features();
    void restore_features();
    void revert_rows();
    Index d_, q_, r_, run_rows_;
    RunState state_;
    Array<double> basis_, history_, reach_, gathered_, value_, coefficients_, scratch_;
    Array<std::uint8_t> age_;
    Array<std::int32_t> place_, feature_, latest_, used_, row_, before_;
    Before kept_;
};

}  // namespace robustfd
