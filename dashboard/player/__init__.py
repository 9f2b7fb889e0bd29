"""The player of a turn: both channels above the waterfall on one clock, with one playhead.

`turn_player` makes the data and draws the component; `player.js` draws it in the browser, in the elements of
`player.html` with `player.css`. It uses no network, and inserts text only as text nodes.
"""
