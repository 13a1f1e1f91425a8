// Logs of bandits in Vowpal Wabbit text: a line or a block of lines for each row.
#include "lines.hpp"

namespace robustfd {

namespace {

// Read an action, action:cost or action:cost:probability.
Problem read_action(const Letter* p, const Letter* word_end, Head& head, Index& action) {
    std::uint64_t number = 0;
    const Letter* after = read_digits(p, number);
    if (after == p || after - p > 9) return Problem::bad_action;
    action = static_cast<Index>(number);
    if (after == word_end) return Problem::none;
    double cost = 0.0, probability = std::nan("");
    after = *after == ':' ? read_number(after + 1, cost) : nullptr;
    if (after && *after == ':') after = read_number(after + 1, probability);
    if (after != word_end) return Problem::bad_action;
    if (head.action >= 0) return Problem::two_costs;
    head.action = action;
    head.label = cost;
    head.probability = probability;
    if (!std::isfinite(cost)) return Problem::not_finite;
    const bool right = std::isnan(probability) || (0.0 < probability && probability <= 1.0);
    return right ? Problem::none : Problem::bad_probability;
}

Problem read_line_of_actions(const Letter*& p, const ParseOptions& o, Head& head, Parsed& parsed,
                             std::vector<Segment>& segments) {
    p = past_blanks(p);
    if (*p == '\n') return Problem::blank;
    const auto read_word = [&](const Letter* begin, const Letter* end, int, Head& into) {
        parsed.actions.push_back(-1);
        return read_action(begin, end, into, parsed.actions.back());
    };
    if (Problem problem = read_head(p, head, read_word); problem != Problem::none) return problem;
    if (o.labelled && head.action < 0) return Problem::unlabelled;
    return read_spaces(p, o, parsed.rows, parsed.dropped, segments);
}

bool starts_with_shared(const Letter* p) {
    constexpr Letter word[] = {'s', 'h', 'a', 'r', 'e', 'd'};
    for (Letter letter : word)
        if (*p++ != letter) return false;
    return ends_token<VW>(*p);
}

// The place of the feature of a line, after the bar at p, if it is the only one and has no value; otherwise -1.
Index only_feature(const Letter* p, const Letter* begin) {
    const Letter* name = ++p;
    while (!ends_token<VW>(*p)) p += 1;
    if (p > name && std::find(name, p, ':') != p) return -1;  // a weight of the namespace
    name = p = past_blanks(p);
    while (*p > ' ' && *p != '|' && *p != ':') ++p;
    return p > name && *past_blanks(p) == '\n' ? name - begin : -1;
}

// A block of lines that is being read.
struct Block {
    Index start = 0, line = 0;  // of the line with the problem
    Index dropped = 0;          // entries before
    std::size_t actions = 0;    // before
    Index chosen = -1;
    Head head, shared;
    Problem problem = Problem::none;
    bool empty = true;
};

class BlockReader {
  public:
    BlockReader(Text text, const ParseOptions& options, Parsed& parsed)
        : begin_(text.data()), options_(options), of_actions_{false, 0, Index{1} << ACTION_BITS, ACTION_BITS, false},
          parsed_(parsed) {}

    // Read a line that is not blank.
    void read_line(const Letter*& p, Index line) {
        const Index start = p - begin_;
        const bool first = block_.empty;
        if (first) {
            block_.dropped = parsed_.dropped;
            block_.actions = parsed_.actions.size();
        }
        block_.empty = false;
        if (block_.problem != Problem::none) return;
        block_.start = start;
        block_.line = line;
        block_.problem = read(p, first);
    }

    void end_block() {
        if (block_.empty) return;
        CsrMatrix& arms = parsed_.groups[0];
        if (block_.problem == Problem::none) block_.problem = problem_of_whole();
        if (block_.problem != Problem::none) {
            parsed_.bad.push_back({block_.start, block_.line, block_.problem});
            parsed_.rows.drop_row();
            parsed_.actions.resize(block_.actions);
            arms.keep_rows(block_.actions);
            parsed_.dropped = block_.dropped;
        } else {
            parsed_.rows.end_row();
            parsed_.starts.push_back(static_cast<Index>(parsed_.actions.size()));
            parsed_.chosen.push_back(block_.chosen);
            parsed_.labels.push_back(block_.head.label);
            parsed_.probabilities.push_back(block_.head.probability);
            for (const Letter* each : {block_.shared.tag, block_.shared.tag_end})
                parsed_.tags.push_back(each ? each - begin_ : 0);
        }
        block_ = {};
    }

  private:
    Problem problem_of_whole() {
        if (parsed_.actions.size() == block_.actions) return Problem::no_actions;
        if (options_.labelled && block_.chosen < 0) return Problem::unlabelled;
        return parsed_.rows.settle() ? Problem::none : Problem::not_finite;
    }

    Problem read(const Letter*& p, bool first) {
        if (starts_with_shared(p)) {
            if (!first) return Problem::late_shared;
            p += 6;
            const auto no_word = [](const Letter*, const Letter*, int, Head&) { return Problem::no_label; };
            if (Problem problem = read_head(p, block_.shared, no_word); problem != Problem::none) return problem;
            return read_spaces(p, options_, parsed_.rows, parsed_.dropped, segments_);
        }
        const auto read_word = [](const Letter* begin, const Letter* end, int place, Head& into) {
            Index action = 0;
            return place > 0 ? Problem::bad_action : read_action(begin, end, into, action);
        };
        const Index before = block_.head.action;
        if (Problem problem = read_head(p, block_.head, read_word); problem != Problem::none) return problem;
        if (before != block_.head.action)
            block_.chosen = static_cast<Index>(parsed_.actions.size() - block_.actions);
        parsed_.actions.push_back(only_feature(p, begin_));
        CsrMatrix& arms = parsed_.groups[0];
        Problem problem = read_spaces(p, of_actions_, arms, parsed_.dropped, segments_);
        if (problem == Problem::none && !arms.settle()) problem = Problem::not_finite;
        if (problem == Problem::none) arms.end_row();
        return problem;
    }

    const Letter* begin_;
    const ParseOptions options_, of_actions_;
    Parsed& parsed_;
    Block block_;
    std::vector<Segment> segments_;
};

}  // namespace

Parsed parse_actions(Text text, const ParseOptions& options) {
    Parsed parsed = room_for<VW>(text);
    std::vector<Segment> segments;
    Head head;
    const auto read_line = [&](const Letter*& p) {
        head = {};
        return read_line_of_actions(p, options, head, parsed, segments);
    };
    parse_lines(text, parsed, read_line, [&](bool is_row) {
        if (!is_row) return parsed.actions.resize(static_cast<std::size_t>(parsed.starts.back()));
        parsed.starts.push_back(static_cast<Index>(parsed.actions.size()));
        parsed.chosen.push_back(head.action);
        parsed.labels.push_back(head.label);
        parsed.probabilities.push_back(head.probability);
        for (const Letter* each : {head.tag, head.tag_end}) parsed.tags.push_back(each ? each - text.data() : 0);
    });
    return parsed;
}

Parsed parse_blocks(Text text, const ParseOptions& options) {
    require_lines(text);
    Parsed parsed(text.size() / 32);
    parsed.groups.emplace_back(text.size() / 8);
    BlockReader reader(text, options, parsed);
    const Letter *p = text.data(), *const end = p + text.size();
    for (Index line = 0; p < end; ++line) {
        p = past_blanks(p);
        if (*p == '\n') {
            reader.end_block();
        } else {
            reader.read_line(p, line);
        }
        while (*p != '\n') ++p;
        ++p;
    }
    reader.end_block();
    return parsed;
}

}  // namespace robustfd
