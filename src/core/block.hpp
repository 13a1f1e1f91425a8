// The rows between two shrinks, in the span of the sketch and of these rows: no array here has length d.
//
// At the beginning of the block let H = B'B + alpha I, where the rows of B are orthogonal with squared lengths lam, and
// let X be the rows of the block. For linear models every gradient is a multiple of its row. So every step of the
// sequential algorithm (Luo et al. 2019, Alg. 3 and 6) until the next shrink follows from Z = X B', G = X X' and X w.
// By the Sherman-Morrison formula
//
//     X H^-1 X' = N / alpha,    N = G - Z diag(1/(lam + alpha)) Z',
//
// and w moves along H^-1 x. The rounding error is that of G / alpha, which is too large when alpha is small. Then the
// block stores the part inside the span of B and the rows added so far separately,
//
//     X H^-1 X' = K + N / alpha,    K = Z diag(1/(lam (lam + alpha))) Z',    N = G - Z diag(1/lam) Z'.
//
// A row c x changes K and N as follows, with D = alpha (1 + c^2 K_jj) + c^2 N_jj if it is outside the span, and N_jj =
// 0 if it is inside:
//
//     outside   K_il += -(c^2 alpha/D) K_ij K_jl - (c^2/D) (K_ij N_jl + N_ij K_jl) + (1 + c^2 K_jj)/(N_jj D) N_ij N_jl
//               N_il -= N_ij N_jl / N_jj
//     inside    K_il -= c^2/(1 + c^2 K_jj) K_ij K_jl
//
// For alpha = 0 these are Meyer's formulas for pseudo-inverses, so the steps are continuous as alpha goes to 0.
//
// The step of a row depends only on earlier rows, so the result does not depend on the batch size. A full block ends
// with a shrink: its steps and its rows become one change of w and B. The eigenvectors of the small Gram matrix of [B;
// c X] are the coefficients of the new rows of B, and eigen.hpp reduces the eigenvalues.
//
// S-AdaGrad and Ada-FD replace lam + alpha, the eigenvalues of H, by their roots h, and alpha by a: sqrt(lam + alpha)
// and sqrt(alpha), or sqrt(lam) + alpha and alpha. Then x'H^-1 x = N / a with the weights (1 - a/h) / lam, or K + N / a
// with the weights 1/(lam h) and 1/lam. Their blocks have one row, which takes its step after the shrink.
#pragma once

#include "level.hpp"
#include "paper_settings.hpp"
#include "rows.hpp"

namespace robustfd {

enum Extreme : int { SAFE, EXTREME_NUMBERS, EXTREME_ROWS };

// K and N are separate (`careful`) while alpha is below this times the largest eigenvalue.
constexpr double SMALL_ALPHA = 1e-8;

// The numbers of a block.
struct BlockState {
    Index filled = 0;   // rows in the block
    Index seen = 0;     // rows since the first
    Index shrinks = 0;
    Index rank = 0;     // of B and the rows added so far
    Index span = 0;     // number of these dimensions in which H is larger than alpha
    bool careful = false;     // whether K and N are stored separately
    bool overflowed = false;
    int extreme = SAFE;       // since the beginning of the call
    double alpha = 0.0;
    double delta_sum = 0.0;   // of all shrinks
    double delta = 0.0;       // of the last shrink
    double factor = 1.0;      // of the stored w
};

// The effect of a row of the block on later rows. Snapshots hold the first eight numbers; the others are temporary.
struct Effect {
    double c2;                // the weight of its outer product in H
    double step;              // its step is this number times along_k K_j + along_n N_j
    double along_k, along_n;
    double one_n;             // the row subtracts one_n N_j N_j' from N
    double kk, kn, nn;        // and adds kk K_j K_j' + kn (K_j N_j' + N_j K_j') + nn one_n N_j N_j' to K
    double rounding;          // up to this value N_jj is rounding error
    double margin, gradient;  // of a row whose step follows the shrink
};

// The rows of the block so far, as products with the sketch and with each other.
struct Block {
    const PaperSettings& settings;
    BlockState& state;
    Index size, r, features;  // rows of B and of the block together at most; rows of B; d
    Matrix<double> products;  // (size, 1 + r): w'x and B x at the beginning of the block
    Matrix<double> gram;      // (size, size): G, lower triangle
    Matrix<double> k;  // (size, size): k[j, i] = K_ij just before row j is added, i >= j; used while alpha is small
    Matrix<double> n;         // (size, size): the same for N
    Effect* rows;             // (size)
    double* lam;              // (r): squared lengths of the rows of B
    double* scratch;          // size (size + r + 2) numbers that no function may rely on after another one ran

    // After the first shrink the rows of B take up part of the buffer.
    Index capacity() const {
        return settings.root != Root::NONE ? 1 : size - (state.shrinks > 0 ? r : 0);
    }
    bool is_full() const { return state.filled == capacity(); }
};

// Replaces w by w + coef_b[0] B + coef_x[0] X and B by coef_b[1:] B + coef_x[1:] X, at the end of a block.
struct Change {
    Matrix<double> coef_b;  // (1 + r, r)
    Matrix<double> coef_x;  // (1 + r, rows)
};

struct BlockLoops {
    // Fill n, and k if it is used, for rows first to last - 1, from the sketch at the beginning of the block.
    void (*begin_rows)(const Block& block, Index first, Index last);
    // Take the steps of the `count` rows just added; return the number of steps before the numbers overflowed.
    Index (*step_rows)(const Block& block, const Batch& batch, Index count);
    // Fill coef_b[0] and coef_x[0] such that the steps of the block change the stored w by coef_b[0] B + coef_x[0] X.
    // `scratch` holds two numbers for each row.
    void (*collect_steps)(const Block& block, double* scratch, double* coef_b, double* coef_x);
    // Fill the lower triangle of the Gram matrix of [B; c X], where B has `had` rows, and the factors c.
    void (*form_stack)(const Block& block, Index had, Matrix<double> stack, double* c);
    // Fill the new rows of B in the change: eigenvectors of the stack, with squared lengths lam.
    void (*write_rows)(const Block& block, const double* values, Matrix<const double> vectors, const double* c,
                       const Change& change);
    // Take the step of the last row with H after the shrink, as printed in Alg. 6 of Luo et al. 2019.
    void (*step_after_shrink)(const Block& block, const Change& change);
    // Compute the products of the last of the dense `rows` with the basis (1 + r, d) and all rows, if few of its
    // entries are non-zero; return whether it did.
    bool (*add_thin_row)(const Block& block, Matrix<const double> basis, Matrix<const double> rows);
};

RFD_LEVELS(BlockLoops, block_loops)

}  // namespace robustfd
