"""The colours that scenes are painted in, as display codes."""

from __future__ import annotations

WALLS = (
    "#b98f76",
    "#c9b79c",
    "#a7573f",
    "#d8cbb4",
    "#8f9aa3",
    "#cfa77c",
    "#9c6b58",
    "#e0d6c8",
    "#7f8a7c",
    "#b8a0a0",
    "#d9b98c",
    "#94504a",
)
TRIMS = ("#e8e4da", "#efe9dc", "#d8d2c4", "#5a5550")
LEAVES = ("#5f8c3a", "#4a7a35", "#7a9a3e", "#3f6b3a", "#8aa24a", "#b98a35", "#6f9550")
CARS = (
    "#b3202a",
    "#f2f2f0",
    "#1d1f24",
    "#8d9499",
    "#27508f",
    "#c9ccd0",
    "#2e6b52",
    "#d9a521",
    "#5b2d46",
    "#3f4a56",
    "#d65f2a",
)
CLOTHES = (
    "#b5382f",
    "#2c4e86",
    "#e6e0d4",
    "#2a2c30",
    "#4d7a4f",
    "#d39a2d",
    "#7a4b82",
    "#8b9096",
    "#d97f8f",
    "#346a72",
)
TROUSERS = ("#23304a", "#2b2b2e", "#5a5148", "#7d756a", "#1f2a33")
SKIN = ("#f0c8a4", "#d9a577", "#a8714a", "#6f4630", "#f5d5b8")
ASPHALT = ("#62646a", "#6d6c6c", "#55585f", "#747272")
PAVING = ("#a7a196", "#b6aa9a", "#98989a", "#ab9486", "#b9b4a6")

# sunlight and skylight with their strength, zenith, horizon, range of cloud cover
MOODS: dict[str, tuple[tuple[str, float], tuple[str, float], str, str, tuple[float, float]]] = {
    "clear": (("#fff4e0", 1.55), ("#b9d2f2", 0.62), "#4f8fd8", "#bcd9ee", (0.05, 0.55)),
    "golden": (("#ffc478", 1.9), ("#b3bbdc", 0.78), "#5d83c0", "#ffd9a8", (0.15, 0.6)),
    "overcast": (("#f2f2f2", 0.22), ("#dfe5ea", 1.1), "#a3afba", "#d3d8da", (0.75, 0.95)),
    "rain": (("#e8eef2", 0.10), ("#cdd8e0", 0.95), "#7f8d99", "#b9c3c8", (0.8, 1.0)),
}
