"""What a browser drew in the pictures of a page."""

from typing import Final

# A function for the page: the words that the right edge of their picture cuts off.
CUT_WORDS: Final = """() => [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg.marks')].flatMap(e => {
  const edge = e.getBoundingClientRect().right + 1;
  return [...e.querySelectorAll('text')].filter(t => t.getBoundingClientRect().right > edge).map(t => t.textContent);
})"""
