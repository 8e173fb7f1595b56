// A line chart that scrolls to the left: the newest value is at the right end. CSS shows the maximum beside it.

export const number = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

// Returns a function that adds a value; it draws the last `maxPoints` values.
export function lineChart(svg, maxPoints) {
  const values = [], line = svg.querySelector(".chart-line"), fill = svg.querySelector(".chart-fill");
  const add = (value) => {
    values.push(value);
    if (values.length > maxPoints) values.shift();
    const max = Math.max(...values, 1), step = 600 / (maxPoints - 1), first = maxPoints - values.length;
    const points = values.map((n, i) => `${((first + i) * step).toFixed(1)} ${(116 - (n / max) * 108).toFixed(1)}`);
    const path = `M${points.join("L")}`;
    line.setAttribute("d", path);
    fill.setAttribute("d", `${path}L600 120L${(first * step).toFixed(1)} 120Z`);
    svg.parentElement.dataset.max = number.format(max);
  };
  add.clear = () => { values.length = 0; };
  return add;
}
