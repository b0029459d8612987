"""The exact ranking engine behind `evaluate`, `neighbors` and the curves.

The engine answers one question: which ranks do the relevant items of a query have? All retrieval metrics follow from
these ranks. The answer is exact, and its cost is close to that of one matrix product of queries and gallery.

What is exact
    The score of a query and a gallery row is the float64 dot product of the two rows (unit rows for the cosine), or
    minus their float64 squared distance. The same two rows always have the same score, bit for bit, wherever they are
    in the set. The rank of an item is one plus the number of gallery rows with a higher score, or with an equal score
    and a smaller index. Nothing else decides a rank: chunk sizes, thread count, the type of the products and the
    number of processes do not change the result.

Candidates from fast products, within a proven error bound
    Exact scores of all pairs would be slow. Fast products (float32, bfloat16 or int8) of rounded rows are computed
    instead. For every query there is a bound on the difference between product and exact score: the rounding of the
    rows by Cauchy-Schwarz, plus the rounding of the sums (`fast_products`). A product that differs from a threshold by
    more than its bound is on a known side of it. Only the few others need an exact score. Which type of product is
    fast, and computed correctly, is measured once per process (`product_timing`).

Counting instead of long lists
    The number of rows above a relevant item is a count, so nothing has to be sorted to the end of the gallery. The
    exact score of each relevant item is placed on the scale of the products as a threshold (`thresholds`). The gallery
    is scanned in chunks of columns (`scan`). Within a chunk the maximum of each group of columns shows where candidates
    can be at all. A lower bound of the k-th largest product (`kth_bound`) excludes items that are deeper than the
    metrics need. The remaining candidates are counted against the thresholds; those within the error bound are
    compared by exact scores (`counting`).

The top of the ranking
    A query with many relevant items has many thresholds. Then it is cheaper to find the first places of its ranking and
    to look which of them are relevant (`top_ranks`, `nearest`). How deep depends on the metrics (`depth`): recall@10
    needs ten places, MAP@R as many as there are relevant items.

Full sort
    For small sets, very deep rankings and collapsed embeddings, in which most products are within the error bound of
    each other, whole rows of float64 products are sorted, and runs of close products are sorted by exact
    scores (`full_sort`).

Chunks and memory
    Queries are processed in blocks, the gallery in chunks of columns, so that a block of products fits into
    `memory_limit` bytes. The buffers are reused from block to block. A block with too many candidates is split, or
    handed to a finer product, or to the full sort. Small sets against themselves compute each product once and use it
    twice.

Processes
    Within a process group every process ranks a share of the queries against the whole gallery. The values of the
    queries, not partial ranks, are exchanged, so that the result has the same bits as that of a single process.

`Ranker` chooses among these ways and is what the metrics call. The constants behind the choices are in `tuning`.
"""
