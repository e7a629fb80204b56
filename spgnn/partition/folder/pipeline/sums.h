// What each column of A adds up to, and which rows have a diagonal entry; every nonzero is 1.
#pragma once

#include "../../stream/edges.h"

namespace spgnn::pipeline {

using stream::Id;
using stream::Large;

class Columns {
  public:
    // is_symmetric: the columns are not counted, as they are as long as the rows.
    Columns(int64_t n, bool is_symmetric) : counts(is_symmetric ? 0 : n), has_loop(n), n_(n) {}

    // Rows first_row, first_row + 1, ... with their numbers of columns.
    void add(int64_t first_row, const uint32_t* lengths, int64_t rows, const Id* columns, int64_t size) {
        const Id *column = columns, *all = columns + size;
        if (first_row < 0 || first_row + rows > n_) throw std::invalid_argument("rows are out of range");
        for (int64_t i = 0; i < rows; ++i) {
            if (int64_t(lengths[i]) > all - column)
                throw std::invalid_argument("rows have more columns than there are");
            const int64_t row = first_row + i;
            for (const Id* end = column + lengths[i]; column < end; ++column) {
                if (int64_t(*column) >= n_) throw std::invalid_argument("a column is out of range");
                has_loop[row] |= uint8_t(int64_t(*column) == row);
                if (counts.size()) ++counts[*column];
            }
        }
    }

    Large<uint32_t> counts;
    Large<uint8_t> has_loop;

  private:
    int64_t n_;
};

}  // namespace spgnn::pipeline
