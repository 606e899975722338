"""Compiled loops: parsing LETOR text, scaling features, LambdaLoss training, linear scores."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

# Feature ids are bounded so that per-feature scratch arrays, and with them memory, stay bounded whatever the input says.
MAX_FEATURE_ID = 1_000_000
MAX_LABEL = 32_767

# Why a line was refused; the reader turns these into sentences.
FINE = 0
BAD_LABEL = 1
LARGE_LABEL = 2
MISSING_QID = 3
BAD_QID = 4
BAD_FEATURE = 5
FEATURE_OUT_OF_RANGE = 6
DUPLICATE_FEATURE = 7
BAD_VALUE = 8

_EXACT = 0
_SLOW = 1
_BAD = 2

_NEWLINE = 10
_HASH = 35
_PLUS = 43
_MINUS = 45
_POINT = 46
_COLON = 58

# Powers of ten that a float64 holds exactly: an integer below 2^53 times or over one of these is rounded once, so the
# result is the nearest float64 (Clinger 1990).
_POWERS = 10.0 ** np.arange(23)
_TWO_53 = np.uint64(1 << 53)
_MAX_DIGITS = 18


@nb.njit(inline="always")
def _is_digit(byte: Any) -> Any:
    return (byte >= 48) & (byte <= 57)


@nb.njit(inline="always")
def _is_blank(byte: Any) -> Any:
    return (byte == 32) | (byte == 9) | (byte == 13)


@nb.njit(inline="always")
def _ends_token(byte: Any) -> Any:
    return (byte == 32) | (byte == 9) | (byte == 13) | (byte == _NEWLINE) | (byte == _HASH)


@nb.njit(cache=True)
def _parse_integer(text: Any, at: Any) -> Any:
    """Value, digits read and the position after them; stops reading after 18 digits, where int64 still holds it."""
    value = np.int64(0)
    digits = 0
    while _is_digit(text[at]) and digits < _MAX_DIGITS:
        value = value * 10 + (text[at] - 48)
        digits += 1
        at += 1
    return value, digits, at


@nb.njit(cache=True)
def _parse_number(text: Any, at: Any) -> Any:
    """Value, whether it is exact, and the position after the number."""
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    mantissa = np.uint64(0)
    digits = 0
    exponent = 0
    any_digit = False
    cut = False
    after_point = False
    while _is_digit(text[at]) or (text[at] == _POINT and not after_point):
        if text[at] == _POINT:
            after_point = True
        elif digits < _MAX_DIGITS:
            any_digit = True
            mantissa = mantissa * np.uint64(10) + np.uint64(text[at] - 48)
            exponent -= after_point
            if mantissa > 0:
                digits += 1
        else:
            cut = True
        at += 1
    if not any_digit:
        return 0.0, _BAD, at
    if text[at] == 101 or text[at] == 69:
        at += 1
        minus = text[at] == _MINUS
        if minus or text[at] == _PLUS:
            at += 1
        if not _is_digit(text[at]):
            return 0.0, _BAD, at
        power = 0
        while _is_digit(text[at]):
            power = min(power * 10 + (text[at] - 48), 100_000)
            at += 1
        exponent += -power if minus else power
    if mantissa == 0:
        return 0.0, _EXACT, at
    if cut or mantissa > _TWO_53 or exponent < -22 or exponent > 22:
        return 0.0, _SLOW, at
    value = np.float64(mantissa)
    value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
    return (-value if negative else value), _EXACT, at


@nb.njit(cache=True)
def parse_letor(
    text: Any, end: Any, stamp: Any, seen: Any, labels: Any, queries: Any, lines: Any, starts: Any,
    first_entry: Any, columns: Any, values: Any, slow: Any,
) -> Any:  # fmt: skip
    """Parse ``text[:end]``, which must end with a newline, into rows and sparse entries.

    Row i has its label, query, line (from 0), position in the text and first entry. Numbers that need more than one
    rounding are left to the caller: ``slow`` lists entry, begin and end. ``seen`` holds per feature the last row
    (counted on from ``stamp``) that had it. Returns rows, entries, slow numbers, lines read, and for a refused line
    the reason and the position of the offending text.
    """
    at = 0
    line = 0
    row = 0
    entry = 0
    n_slow = 0
    while at < end:
        while _is_blank(text[at]):
            at += 1
        if text[at] == _NEWLINE or text[at] == _HASH:
            while text[at] != _NEWLINE:
                at += 1
            at += 1
            line += 1
            continue
        starts[row] = at
        token = at
        label, digits, at = _parse_integer(text, at)
        if digits == 0 or not _ends_token(text[at]):
            return row, entry, n_slow, line, BAD_LABEL, token
        if label > MAX_LABEL:
            return row, entry, n_slow, line, LARGE_LABEL, token
        while _is_blank(text[at]):
            at += 1
        token = at
        if not (text[at] == 113 and text[at + 1] == 105 and text[at + 2] == 100 and text[at + 3] == _COLON):
            return row, entry, n_slow, line, MISSING_QID, token
        query, digits, at = _parse_integer(text, at + 4)
        if digits == 0 or not _ends_token(text[at]):
            return row, entry, n_slow, line, BAD_QID, token
        first_entry[row] = entry
        while True:
            while _is_blank(text[at]):
                at += 1
            if text[at] == _NEWLINE or text[at] == _HASH:
                break
            token = at
            feature, digits, at = _parse_integer(text, at)
            if text[at] != _COLON or digits == 0:
                return row, entry, n_slow, line, BAD_FEATURE, token
            if feature < 1 or feature > MAX_FEATURE_ID:
                return row, entry, n_slow, line, FEATURE_OUT_OF_RANGE, token
            if seen[feature] == stamp + row:
                return row, entry, n_slow, line, DUPLICATE_FEATURE, token
            seen[feature] = stamp + row
            begin = at + 1
            value, status, at = _parse_number(text, begin)
            if status == _BAD or not _ends_token(text[at]):
                return row, entry, n_slow, line, BAD_VALUE, token
            if status == _SLOW:
                slow[n_slow, 0] = entry
                slow[n_slow, 1] = begin
                slow[n_slow, 2] = at
                n_slow += 1
            columns[entry] = feature
            values[entry] = value
            entry += 1
        while text[at] != _NEWLINE:
            at += 1
        at += 1
        labels[row] = label
        queries[row] = query
        lines[row] = line
        line += 1
        row += 1
    first_entry[row] = entry
    return row, entry, n_slow, line, FINE, end


@nb.njit(cache=True)
def scale_queries(
    query_rows: Any, first_entry: Any, columns: Any, values: Any, normalise: Any, occurs: Any, varies: Any,
    low: Any, high: Any, count: Any, touched: Any,
    background_count: Any, entry_count: Any, out_columns: Any, out_values: Any,
) -> Any:  # fmt: skip
    """Scale each feature of each query to [0, 1] and keep what differs from the query's background.

    A missing feature is 0 before scaling; where others of the query are negative it is not 0 afterwards, so such a
    column gets a *background* value per query. Per query the output holds its backgrounds, then row after row the
    entries that differ. ``count`` must be all zero and is left so.
    """
    largest = np.float64(np.finfo(np.float32).max)
    out = 0
    for q in range(query_rows.shape[0] - 1):
        begin = query_rows[q]
        end = query_rows[q + 1]
        n_touched = 0
        for entry in range(first_entry[begin], first_entry[end]):
            column = columns[entry]
            value = values[entry]
            if count[column] == 0:
                touched[n_touched] = column
                n_touched += 1
                low[column] = value
                high[column] = value
            else:
                low[column] = min(low[column], value)
                high[column] = max(high[column], value)
            count[column] += 1
        backgrounds = 0
        for t in range(n_touched):
            column = touched[t]
            if count[column] < end - begin:
                low[column] = min(low[column], 0.0)
                high[column] = max(high[column], 0.0)
                if normalise and low[column] < 0.0 and high[column] > low[column]:
                    out_columns[out] = column
                    out_values[out] = _scaled(0.0, low[column], high[column])
                    out += 1
                    backgrounds += 1
            count[column] = 0
            occurs[column] = True
            if high[column] > low[column]:
                varies[column] = True
        background_count[q] = backgrounds
        first_background = out - backgrounds
        for b in range(first_background, first_background + backgrounds):
            count[out_columns[b]] = 1
        for row in range(begin, end):
            row_start = out
            for entry in range(first_entry[row], first_entry[row + 1]):
                column = columns[entry]
                if normalise:
                    value = _scaled(values[entry], low[column], high[column])
                else:
                    value = min(max(values[entry], -largest), largest)
                if value != 0.0 or count[column] == 1:
                    out_columns[out] = column
                    out_values[out] = value
                    out += 1
            entry_count[row] = out - row_start
        for b in range(first_background, first_background + backgrounds):
            count[out_columns[b]] = 0
    return out


@nb.njit(inline="always")
def _scaled(value: Any, low: Any, high: Any) -> Any:
    if high <= low:
        return 0.0
    span = high - low
    if span < np.inf:
        return (value - low) / span
    # The range of the largest float64 values overflows unless halved first.
    return (0.5 * value - 0.5 * low) / (0.5 * high - 0.5 * low)


@nb.njit(cache=True)
def fill_rows(
    query_lengths: Any, background_count: Any, entry_count: Any, columns: Any, values: Any, position: Any, out: Any
) -> None:
    """Write the output of ``scale_queries`` into dense rows; ``position`` maps feature ids to columns of ``out``, or -1."""
    row = 0
    at = 0
    for q in range(query_lengths.shape[0]):
        first_background = at
        at += background_count[q]
        end_background = at
        for _ in range(query_lengths[q]):
            for b in range(first_background, end_background):
                if position[columns[b]] >= 0:
                    out[row, position[columns[b]]] = values[b]
            for _ in range(entry_count[row]):
                if position[columns[at]] >= 0:
                    out[row, position[columns[at]]] = values[at]
                at += 1
            row += 1


@nb.njit(cache=True, nogil=True)
def linear_scores(features: Any, weights: Any, out: Any) -> None:
    """Scores by a plain loop: the same bytes on every machine, and no float64 copy of the features."""
    n, width = features.shape
    fours = width // 4 * 4
    for row in range(n):
        # Four sums, since each addition must wait for the one before it.
        a = 0.0
        b = 0.0
        c = 0.0
        d = 0.0
        for f in range(0, fours, 4):
            a += np.float64(features[row, f]) * weights[f]
            b += np.float64(features[row, f + 1]) * weights[f + 1]
            c += np.float64(features[row, f + 2]) * weights[f + 2]
            d += np.float64(features[row, f + 3]) * weights[f + 3]
        for f in range(fours, width):
            a += np.float64(features[row, f]) * weights[f]
        out[row] = (a + b) + (c + d)


@nb.njit(cache=True, nogil=True)
def pair_weights(length: Any) -> Any:
    """NDCG-Loss2 weight of a pair by the distance of its ranks: |1/D(distance) - 1/D(distance + 1)|, D(i) = log2(1 + i)."""
    weights = np.zeros(length + 1)
    for distance in range(1, length + 1):
        weights[distance] = 1.0 / np.log2(1.0 + distance) - 1.0 / np.log2(2.0 + distance)
    return weights


@nb.njit(cache=True, nogil=True)
def max_dcg(labels: Any, cutoff: Any) -> Any:
    ordered = np.sort(labels)[::-1]
    total = 0.0
    for i in range(min(cutoff, ordered.shape[0])):
        total += (2.0 ** ordered[i] - 1.0) / np.log2(2.0 + i)
    return total


@nb.njit(cache=True, nogil=True)
def lambda_gradient(scores: Any, labels: Any, cutoff: Any, weight_by_distance: Any, gradient: Any) -> Any:
    """Gradient of the NDCG-Loss2 of one query by its scores, the ranks held fixed; returns the loss."""
    n = scores.shape[0]
    gradient[:] = 0.0
    ideal = max_dcg(labels, cutoff)
    if ideal == 0.0:
        return 0.0
    # Sorted by score, a pair's distance in rank is its distance in the loop.
    order = np.argsort(-scores, kind="mergesort")
    gains = np.empty(n)
    for i in range(n):
        gains[i] = (2.0 ** labels[order[i]] - 1.0) / ideal
    loss = 0.0
    for i in range(n):
        for j in range(i + 1, n):
            difference = gains[i] - gains[j]
            if difference == 0.0:
                continue
            margin = scores[order[i]] - scores[order[j]]
            if difference < 0.0:
                margin = -margin
            weight = weight_by_distance[j - i] * abs(difference) / np.log(2.0)
            # Written for either sign of the margin so that exp never overflows.
            small = np.exp(-abs(margin))
            loss += weight * (np.log1p(small) + max(-margin, 0.0))
            slope = weight * (small if margin > 0.0 else 1.0) / (1.0 + small)
            if difference < 0.0:
                slope = -slope
            gradient[order[i]] -= slope
            gradient[order[j]] += slope
    return loss


@nb.njit(cache=True, nogil=True)
def mean_ndcg(weights: Any, offsets: Any, labels: Any, features: Any, cutoff: Any) -> Any:
    """Mean NDCG over the queries that have any relevant document; 0 if none has."""
    total = 0.0
    counted = 0
    for q in range(offsets.shape[0] - 1):
        begin = offsets[q]
        end = offsets[q + 1]
        ideal = max_dcg(labels[begin:end], cutoff)
        if ideal == 0.0:
            continue
        scores = np.empty(end - begin)
        linear_scores(features[begin:end], weights, scores)
        order = np.argsort(-scores, kind="mergesort")
        dcg = 0.0
        for i in range(min(cutoff, end - begin)):
            dcg += (2.0 ** labels[begin + order[i]] - 1.0) / np.log2(2.0 + i)
        total += dcg / ideal
        counted += 1
    return total / counted if counted > 0 else 0.0


@nb.njit(cache=True, nogil=True)
def train_linear(
    weights: Any, trainable: Any, schedule: Any, rate: Any, decay: Any, patience: Any, cutoff: Any,
    offsets: Any, labels: Any, features: Any,
    check_offsets: Any, check_labels: Any, check_features: Any,
) -> Any:  # fmt: skip
    """SGD over the rows of ``schedule`` (one pass over the queries each); returns the best weights and their NDCG."""
    longest = 0
    for q in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[q + 1] - offsets[q])
    weight_by_distance = pair_weights(longest)
    scores = np.empty(longest)
    slopes = np.empty(longest)
    step = np.empty(weights.shape[0])
    best = weights.copy()
    best_ndcg = mean_ndcg(weights, check_offsets, check_labels, check_features, cutoff)
    waited = 0
    for epoch in range(schedule.shape[0]):
        for q in schedule[epoch]:
            begin = offsets[q]
            end = offsets[q + 1]
            n = end - begin
            linear_scores(features[begin:end], weights, scores)
            lambda_gradient(scores[:n], labels[begin:end], cutoff, weight_by_distance, slopes[:n])
            step[:] = 0.0
            for i in range(n):
                for f in range(weights.shape[0]):
                    step[f] += slopes[i] * features[begin + i, f]
            for f in range(weights.shape[0]):
                if trainable[f]:
                    weights[f] -= rate * step[f]
            rate *= decay
        ndcg = mean_ndcg(weights, check_offsets, check_labels, check_features, cutoff)
        if ndcg > best_ndcg:
            best_ndcg = ndcg
            best[:] = weights
            waited = 0
        else:
            waited += 1
            if waited >= patience:
                break
    return best, best_ndcg
