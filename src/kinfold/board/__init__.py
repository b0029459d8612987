"""A board: the results of many benches on one page, with what is known about each number.

entries     one method on one data set of a bench, with checksums of what it depends on
board       `Board`: entries that may be compared, groups that cannot be distinguished, gains, claims
tables      the board as Markdown
page        the board as one offline page
replay      runs an entry again and compares the scores

board = Board.open(["bench/birds", "bench/flowers"])
print(board.table())
board.write("board")
"""

from kinfold.board.board import Board, Panel
from kinfold.board.claims import Claim, read_claims
from kinfold.board.entries import BoardEntry, read_entries
from kinfold.board.replay import Replay, replay_entry

__all__ = ["Board", "BoardEntry", "Claim", "Panel", "Replay", "read_claims", "read_entries", "replay_entry"]
