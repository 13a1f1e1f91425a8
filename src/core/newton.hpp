// RFD-SON, FD-SON, PFD-SON and FULL-ON: the current block of rows, and the basis that holds w and B.
//
// A basis has for every feature its weight and its entries in the rows of B. Dense rows have a plain array, wide sparse
// rows the runs of run.hpp. Both classes have the same functions:
//
//     add      adds rows done to done + count - 1 of x to the block: their products with w and B, and with its rows
//     change   applies the change at the end of a block
//     combine  fills `out` with of_w w + coef_b B + coef_x X, for some features, or for all if there are none
//
// and begin, commit and rollback as in learner.hpp, where `filled` is the number of rows of the block.
#pragma once

#include <optional>

#include "block.hpp"
#include "learner.hpp"
#include "run.hpp"

namespace robustfd {

class DenseBasis {
  public:
    DenseBasis(Index d, Index m, Index rows);
    Index features() const { return d_; }
    std::vector<Part> parts();
    void add(const Block& block, const Rows& x, Index done, Index count);
    void change(const Block& block, const Change& change);
    void combine(double of_w, const double* coef_b, Span<const double> coef_x, Span<const std::int32_t> features,
                 double* out);
    void begin(Index filled);
    void commit();
    void rollback();

  private:
    Index d_, q_, rows_;
    Array<double> basis_, buffer_, strip_;  // (q, d): w and B; (rows, d): rows of the block; a strip of features
    const double* block_rows_ = nullptr;    // the rows of the block: in the buffer, or in the caller's batch
    bool active_ = false;
    Index filled_before_ = 0;
    std::optional<Array<double>> basis_before_, rows_before_;
};

class SparseBasis {
  public:
    SparseBasis(Index d, Index m, Index rows, Index run_rows);  // run_rows: the rows of a run, at least `rows`
    Index features() const { return d_; }
    std::vector<Part> parts();
    void add(const Block& block, const Rows& x, Index done, Index count);
    void change(const Block& block, const Change& change);
    void combine(double of_w, const double* coef_b, Span<const double> coef_x, Span<const std::int32_t> features,
                 double* out);
    void begin(Index filled);
    void commit();
    void rollback();

    void widen(Index d);
    const RunState& state() const { return state_; }
    Index left() const { return run_rows_ - state_.rows; }  // rows for which the run has space

    // The entries of the run in the order of rows, for snapshots, and the reverse. `restore` expects valid numbers, and
    // a new basis; `rows` of the run have entries, the last of which belong to the block.
    struct Entries {
        std::vector<double> value;
        std::vector<std::int32_t> row, where;
    };
    Entries entries() const;
    void restore(Index number, Index rows, Span<const std::int32_t> feature, const double* gathered,
                 Span<const double> value, const std::int32_t* row, const std::int32_t* where);

  private:
    // The arrays of the run, which grow (run.hpp).
    struct RunArrays {
        Array<double> gathered, value;
        Array<std::int32_t> feature, latest, used, row, before;
    };
    // All features.
    struct Features {
        Array<double> basis, history;
        Array<std::uint8_t> age;
    };
    // What `rollback` needs, in the order in which it can change.
    struct Before {
        Index d = 0;
        RunState state;
        std::optional<Array<double>> coefficients;
        std::optional<RunArrays> run;
        std::vector<std::int32_t> features;  // those that were written back, with their ages and numbers
        std::vector<std::uint8_t> ages;
        std::vector<double> numbers;
        Array<std::uint8_t> is_stored;  // (d): whether a feature is among `features`
        std::optional<Features> all;
    };

    Run run();
    void reserve(Index entries);
    void end_run();
    void store_features();
    void revert_rows();
    Index d_, q_, r_, run_rows_;
    RunState state_;
    Features all_;
    RunArrays run_;
    Array<std::int32_t> place_;
    Array<double> reach_, coefficients_, scratch_;
    std::optional<Before> before_;  // while a call can be reverted
};

class Newton final : public Learner {
  public:
    // `rows` is the number of rows of B and of the block together, at least m; `run_rows` the least number of rows of a
    // run of sparse rows, which consists of whole blocks.
    Newton(const PaperSettings& settings, Index d, Index m, Index rows, bool sparse, Index run_rows);

    Index features() const override;
    std::vector<Part> parts() override;
    Index learn(const Rows& rows, const Batch& batch, const double* normal) override;
    void begin() override;
    void commit() override;
    void rollback() override;
    int extreme() const override { return state.extreme; }

    // The coefficients of B and of the rows in the change of the stored w by the steps of the block so far.
    void collect_steps(double* coef_b, double* coef_x);
    void combine(double of_w, const double* coef_b, Span<const double> coef_x, Span<const std::int32_t> features,
                 double* out);
    void multiply_weights(double factor);
    SparseBasis* sparse() { return std::get_if<SparseBasis>(&basis_); }  // null for dense rows

    const PaperSettings settings;
    const Index m, size;
    BlockState state;

  private:
    struct Numbers {
        Array<double> products, gram, k, n, rows, lam;
    };
    Block block();
    bool end_block();
    std::optional<Change> shrink();
    void store();
    Numbers numbers_;
    Array<double> coef_b_, coef_x_, scratch_;
    std::variant<DenseBasis, SparseBasis> basis_;
    bool active_ = false;
    BlockState state_before_;
    std::optional<Numbers> numbers_before_;
};

}  // namespace robustfd
