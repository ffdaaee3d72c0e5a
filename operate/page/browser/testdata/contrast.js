// Returns how many texts are visible, and those whose contrast with what is behind them is below 4.5.
(() => {
  const parse = color => {
    const n = color.match(/[\d.]+/g).map(Number)
    return color.startsWith('color(') ? {r: n[0] * 255, g: n[1] * 255, b: n[2] * 255, a: n[3] ?? 1} : {r: n[0], g: n[1], b: n[2], a: n[3] ?? 1}
  }
  const over = (top, below) => ({r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a), b: top.b * top.a + below.b * (1 - top.a), a: 1})
  const light = ({r, g, b}) => {
    const l = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4
    return .2126 * l(r) + .7152 * l(g) + .0722 * l(b)
  }
  const behind = e => {
    const layers = []
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor)
      if (c.a > 0) layers.push(c)
      if (c.a === 1) break
    }
    return layers.reverse().reduce((below, top) => over(top, below), {r: 255, g: 255, b: 255, a: 1})
  }
  const weak = []
  let texts = 0
  const look = (e, text, color) => {
    if (!text.trim() || !e.checkVisibility({opacityProperty: true, visibilityProperty: true})) return
    texts++
    const back = behind(e)
    let c = parse(color)
    for (let p = e; p; p = p.parentElement) c = {...c, a: c.a * Number(getComputedStyle(p).opacity)}
    const [a, b] = [light(over(c, back)), light(back)].sort((x, y) => y - x)
    const ratio = (a + .05) / (b + .05)
    if (ratio < 4.5) weak.push(`${ratio.toFixed(2)} ${e.tagName}.${e.getAttribute('class') ?? ''} ${text.trim().slice(0, 40)}`)
  }
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement
    if (['SCRIPT', 'STYLE', 'NOSCRIPT', 'OPTION', 'title', 'desc'].includes(e.tagName) || e.closest('.hidden')) continue
    const style = getComputedStyle(e)
    look(e, walk.currentNode.data, e.namespaceURI.endsWith('svg') ? style.fill : style.color)
  }
  for (const e of document.querySelectorAll('input, select')) {
    look(e, e.value || e.placeholder || '', e.value ? getComputedStyle(e).color : getComputedStyle(e, '::placeholder').color)
  }
  return {texts, weak}
})()
