"""Pictures, curves and one self-contained HTML page."""

from onesigma.report.figures import Panel, save_map, save_overview
from onesigma.report.maps import map_arrays, panels, save_maps
from onesigma.report.page import Page, Row, Section, Table, render_page, write_page
from onesigma.report.scales import (
    ColourScale,
    LabelScale,
    MapScales,
    label_scales,
    regression_scales,
    scales_for,
)

__all__ = [
    "ColourScale",
    "LabelScale",
    "MapScales",
    "Page",
    "Panel",
    "Row",
    "Section",
    "Table",
    "label_scales",
    "map_arrays",
    "panels",
    "regression_scales",
    "render_page",
    "save_map",
    "save_maps",
    "save_overview",
    "scales_for",
    "write_page",
]
