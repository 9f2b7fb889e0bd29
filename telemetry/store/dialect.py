"""The functions in the questions' SQL that ClickHouse has under another name, or in another form.

A store for more than one machine would answer the same statements there. `{}` is replaced by the arguments of the call,
`{0}` and `{1}` by one of them. Functions with the same name in both are in `SHARED`.
"""

from typing import Final

SHARED: Final = frozenset(
    {
        *("abs", "avg", "ceil", "coalesce", "count", "greatest", "grouping", "least", "lower", "max", "min"),
        *("range", "round", "row_number", "sum"),
    }
)
CLICKHOUSE: Final = {
    "any_value": "any({})",
    "arg_max": "argMax({})",
    "arg_min": "argMin({})",
    "array_agg": "groupArray({})",
    "bit_count": "bitCount({})",
    "bit_or": "groupBitOr({})",
    "bool_or": "max({})",
    "chr": "char({})",
    "concat_ws": "concatWithSeparator({})",
    "contains": "position({}) > 0",
    "flatten": "arrayFlatten({})",
    "generate_subscripts": "arrayEnumerate({0})",  # by ARRAY JOIN, together with the other unnested lists
    "hash": "cityHash64({})",  # which draws other turns, as many of them
    "lag": "lagInFrame({})",
    "len": "length({})",
    "list": "groupArray({})",
    "list_contains": "has({})",
    "list_distinct": "arrayDistinct({})",
    "list_has_any": "hasAny({})",
    "list_max": "arrayMax({})",
    "list_position": "nullIf(indexOf({}), 0)",
    "list_sort": "arraySort({})",
    "list_transform": "arrayMap({1}, {0})",
    "md5_number_lower": "reinterpretAsUInt64(substring(MD5({}), 9))",
    "nullif": "nullIf({})",
    "quantile_cont": "quantilesExactInclusive({1})({0})",  # which interpolates between values, as `quantile_cont` does
    "regexp_extract": "regexpExtract({})",
    "starts_with": "startsWith({})",
    "string_agg": "arrayStringConcat(groupArray({0}), {1})",
    "unnest": "arrayJoin({})",
}
