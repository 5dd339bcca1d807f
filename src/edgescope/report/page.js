// Draws every JSON island with plotly. Names stand beside their curves where there is room, in a legend where not.
(function () {
  "use strict";
  var NARROW = 640;
  var config = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false, // plotly 7 shows the button by default; no reader may upload a result by a slip
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
    displayModeBar: "hover",
  };

  function fitted(figure, width) {
    var layout = Object.assign({}, figure.layout);
    var labels = layout.annotations || [];
    var others = labels.filter(function (a) { return a.name !== "direct"; });
    var inText = layout.meta === "names in text";
    if (width < NARROW && (inText || others.length < labels.length)) {
      if (inText) {
        figure.data.forEach(function (t) { if (t.mode === "markers+text") { t.mode = "markers"; } });
      }
      layout.annotations = others;
      layout.showlegend = true;
      layout.margin = Object.assign({}, layout.margin, { r: 12 });
      layout.height = layout.height + 90;
    }
    return layout;
  }

  function draw(island) {
    var target = document.getElementById(island.dataset.plot);
    var figure = JSON.parse(island.textContent);
    var wasNarrow = target.clientWidth < NARROW;
    var layout = fitted(figure, target.clientWidth);
    Plotly.newPlot(target, figure.data, layout, config);
    window.addEventListener("resize", function () {
      var isNarrow = target.clientWidth < NARROW;
      if (isNarrow !== wasNarrow) {
        wasNarrow = isNarrow;
        var fresh = JSON.parse(island.textContent);
        var other = fitted(fresh, target.clientWidth);
        Plotly.react(target, fresh.data, other, config);
      }
    });
  }

  document.querySelectorAll("script[data-plot]").forEach(function (island) {
    var folded = island.closest("details:not([open])");
    if (!folded) { draw(island); return; }
    folded.addEventListener("toggle", function () { draw(island); }, { once: true }); // a folded plot has no width
  });

  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (d) { d.open = true; });
  });
})();
