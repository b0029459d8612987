"""Tuning constants of the ranking engine. They change the speed and the memory, never a result.

Each comment says what was measured. `python -m benchmarks.evaluate` and `python -m benchmarks.evaluate_classes` show
the effect of a change. The code reads the constants as `tuning.NAME`, so that tests can change them here.
"""

# Chunks and memory
MEMORY_LIMIT = 1 << 28  # bytes for one block of products, unless the caller gives another limit
COLUMNS_PER_CHUNK = 1 << 16
MIN_QUERIES_PER_BLOCK = 16
MAX_QUERIES_PER_BLOCK = 1024
CANDIDATE_BYTES = 128  # memory of one candidate of a nearest-neighbor search until it is ordered
TOP_CANDIDATE_BYTES = 64  # the same for candidates that are sorted by their products
SORTED_ROW_BYTES = 12  # memory per gallery row while a row of float64 products is sorted
EXACT_SORT_BYTES = 40  # memory per gallery row while runs of close products are sorted by exact scores

# Pieces that stay in the processor's cache, or bound a temporary copy
ROWS_PER_CHECK = 1 << 16  # rows that are checked or normalized at a time
ROWS_PER_ROUNDING = 1 << 15  # rows that are rounded at a time
INT8_ENTRIES_PER_ROUNDING = 1 << 17  # numbers that are rounded to int8 at a time; they stay in the cache
EXACT_PAIR_ENTRIES = 1 << 18  # float64 numbers of the pairs that are scored at a time; they stay in the cache
FAST_PAIR_ENTRIES = 1 << 19  # the same for float32 products of single pairs
THRESHOLD_ENTRIES = 1 << 23  # float64 numbers of the rows that are gathered for thresholds
SORTED_ENTRIES = 1 << 17  # float64 numbers that a thread sorts at a time; they stay in the cache
MIN_ENTRIES_FOR_THREADS = 1 << 17  # below, starting threads costs more than sorting

# Scan of a chunk
GALLERY_PADDING = 64  # the gallery is padded to a multiple of this, so that all groups of columns are complete
# widths of a group of columns, each with the number of groups for each needed rank that it must leave
GROUP_WIDTHS = ((64, 1.8), (32, 1.8), (16, 1.4), (8, 1.4), (4, 1.4), (2, 1.4))
MIN_ADJACENT_WIDTH = 32  # groups from this width on are of adjacent columns; maxima of few adjacent columns are slow
GROUPS_PER_PASS = 1 << 15
DENSE_GROUPS = 0.5  # share of groups with candidates above which a pass over all columns is cheaper
SYMMETRIC_TILE = 512  # rows and columns of the tiles in which a symmetric matrix is computed

# Lower bound of the k-th largest product
MAX_TOPK = 12  # up to this k, torch.topk is faster than selection
SAMPLE_STRIDE = 8  # one of so many columns estimates the k-th largest of all
SAMPLE_MARGIN = 2.5  # standard deviations by which the estimate is lowered, so that few rows have to be repeated
FLAG_ROWS = 128  # rows whose flags stay in the cache; sums of float32 flags are ten times as fast as sums of booleans

# Counting
MAX_CANDIDATE_SHARE = 0.25  # of all pairs; above, sorting is faster than counting
ALWAYS_COUNTED = 1 << 16  # candidates that are counted in any case
MAX_LIST_PADDING = 4  # padded lists of candidates may be this many times as long as needed
PAIRS_PER_DECISION = 1 << 21  # pairs that are compared by exact scores at a time

# Choice of the product
FAST_PRODUCT_SHARE = 0.7  # of the time of a float32 product; only products below it are worth their error
TIMING_SHAPE = (256, 4096, 128)  # queries, gallery rows and features of the timed product
MIN_BLOCKS_FOR_TRIALS = 8  # with fewer blocks it does not pay to try which product is the fastest
TRIALS_PER_PRODUCT = 2  # blocks
MIN_BLOCK_TIME = 1.2  # times that of its products is the least that a block takes
MAX_INT8_DEPTH = 64  # ranks down to which int8 products separate most items
MAX_INT8_FEATURES = 1 << 16  # above, sums of int8 products may overflow int32
MIN_DEPTH_FOR_PIECES = 256  # from this depth on many products are close: pieces of the features have less error
COUNTED_PIECE = 128  # features of a piece, where ranks are counted
MIN_ROWS_PER_NEIGHBOR = 128  # gallery rows per neighbor below which bfloat16 leaves too many candidates
MAX_CANDIDATES_PER_NEIGHBOR = 64  # above, a finer product is faster

# Choice between the top of the ranking and counting
MIN_RELEVANT_FOR_TOP = 32  # relevant items of a query from which on the top is cheaper,
MAX_DEPTH_PER_RELEVANT = 8  # unless it is deeper than this many times their number
ALWAYS_TOP_RELEVANT = 256  # relevant items from which on the top is always cheaper
NEAREST_DEPTH = 4  # depth down to which the top is always cheaper
NEAREST_DEPTH_OF_FEW = 16  # the same for few queries, for which no product is tried out
SMALL_GALLERY = 1 << 12  # rows up to which the top is always cheaper

# Top of the ranking
EXACT_TOP_DEPTH = 16  # depth up to which exact scores of all candidates are cheaper than float32 products,
#                       where bfloat16 products are fast
SELECTED_SHARE = 0.11  # of the gallery: depth up to which candidates are selected before they are sorted
PARTITION_SHARE = 0.4  # of the gallery: depth up to which the top is separated before it is sorted
EXTRA_DEPTH = 8  # more places that are looked at, for scores that tie with the last one
FIRST_SEARCH_DEPTH = 16  # depth in which the first relevant item is searched at first
DEEPER_FACTOR = 8  # by which the search continues for queries without a relevant item there
MAX_MISSING_SHARE = 0.25  # of queries without one, above which the next search starts deeper
TOP_PIECE = 64  # features that are multiplied at a time
DEEP_TOP_PIECE = 32  # the same from MIN_DEPTH_FOR_DEEP_PIECE places on, which need less error
MIN_DEPTH_FOR_DEEP_PIECE = 200
