// A line that goes on to the right: the newest value at its end. What its highest point stands for is written beside it.

export const number = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

export function line(svg, kept) {
  const past = [], over = svg.querySelector(".over"), under = svg.querySelector(".under");
  const draw = (value) => {
    past.push(value);
    if (past.length > kept) past.shift();
    const most = Math.max(...past, 1), step = 600 / (kept - 1), from = kept - past.length;
    const points = past.map((n, i) => `${((from + i) * step).toFixed(1)} ${(116 - (n / most) * 108).toFixed(1)}`);
    const path = `M${points.join("L")}`;
    over.setAttribute("d", path);
    svg.parentElement.dataset.most = number.format(most);
    under.setAttribute("d", `${path}L600 120L${(from * step).toFixed(1)} 120Z`);
  };
  draw.clear = () => { past.length = 0; };
  return draw;
}
