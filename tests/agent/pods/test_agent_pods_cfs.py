"""CPU amounts through shares and quotas and back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.agent.pods.quotas import MOST_SHARES, milli_of_quota, milli_of_shares, quota_of, shares_of

MILLI = st.integers(0, 300_000)
PERIODS = st.integers(1000, 1_000_000)


@settings(max_examples=300)
@given(st.integers(3, 255_999))
def test_a_request_comes_back_exactly_from_its_shares(milli: int) -> None:
    assert milli_of_shares(shares_of(milli)) == milli


def test_requests_beyond_what_shares_can_tell_are_unknown() -> None:
    assert [milli_of_shares(shares_of(milli)) for milli in (0, 1, 2, 256_000, 999_999)] == [0, 0, 0, None, None]


@settings(max_examples=200)
@given(st.integers(0, MOST_SHARES - 1))
def test_shares_that_no_request_has_count_as_the_next_smaller_request(shares: int) -> None:
    milli = milli_of_shares(shares)
    assert milli is not None
    assert shares_of(milli) <= max(shares, 2) < shares_of(max(milli, 2) + 1)


@settings(max_examples=300)
@given(MILLI.filter(bool), PERIODS)
def test_a_limit_lies_between_the_bounds_of_its_quota(milli: int, period: int) -> None:
    quota = quota_of(milli, period)
    least, greatest = milli_of_quota(quota, period)
    assert least <= milli <= greatest
    assert quota_of(greatest + 1, period) > quota
    assert least == 1 or quota_of(least - 1, period) < quota


@settings(max_examples=200)
@given(st.integers(11, 300_000))
def test_at_the_usual_period_the_bounds_are_one(milli: int) -> None:
    assert milli_of_quota(quota_of(milli)) == (milli, milli)
