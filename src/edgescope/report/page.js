// Draws every JSON island with plotly. Names stand beside their curves where there is room, in a legend where not.
(function () {
  "use strict";
  var NARROW = 640;
  var config = {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
    displayModeBar: "hover",
  };

  function fitted(figure, width) {
    var layout = Object.assign({}, figure.layout);
    var direct = (layout.annotations || []).some(function (a) { return a.name === "direct"; });
    if (direct && width < NARROW) {
      layout.annotations = layout.annotations.filter(function (a) { return a.name !== "direct"; });
      layout.showlegend = true;
      layout.margin = Object.assign({}, layout.margin, { r: 12 });
      layout.height = layout.height + 90;
    }
    return layout;
  }

  document.querySelectorAll("script[data-plot]").forEach(function (island) {
    var target = document.getElementById(island.dataset.plot);
    var figure = JSON.parse(island.textContent);
    var wasNarrow = target.clientWidth < NARROW;
    Plotly.newPlot(target, figure.data, fitted(figure, target.clientWidth), config);
    window.addEventListener("resize", function () {
      var isNarrow = target.clientWidth < NARROW;
      if (isNarrow !== wasNarrow) {
        wasNarrow = isNarrow;
        var fresh = JSON.parse(island.textContent);
        Plotly.react(target, fresh.data, fitted(fresh, target.clientWidth), config);
      }
    });
  });

  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (d) { d.open = true; });
  });
})();
