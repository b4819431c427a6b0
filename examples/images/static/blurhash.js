// Draws a BlurHash: a few cosine waves for each colour channel, in 20 to 30 characters.

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#$%*+,-.:;=?@[]^_{|}~";

const number = (text) => [...text].reduce((sum, digit) => sum * 83 + DIGITS.indexOf(digit), 0);

const toLinear = (value) => (value <= 10.31475 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);

function toSrgb(value) {
  const clamped = Math.min(Math.max(value, 0), 1);
  return 255 * (clamped <= 0.0031308 ? clamped * 12.92 : 1.055 * clamped ** (1 / 2.4) - 0.055);
}

function waves(hash) {
  const size = number(hash[0]);
  const [columns, rows] = [(size % 9) + 1, Math.floor(size / 9) + 1];
  const loudest = (number(hash[1]) + 1) / 166;
  const signed = (level) => Math.sign(level - 9) * ((level - 9) / 9) ** 2 * loudest;
  const average = number(hash.slice(2, 6));
  const colors = [[average >> 16, (average >> 8) & 255, average & 255].map(toLinear)];
  for (let place = 6; place < hash.length; place += 2) {
    const level = number(hash.slice(place, place + 2));
    colors.push([Math.floor(level / 361), Math.floor(level / 19) % 19, level % 19].map(signed));
  }
  return { columns, rows, colors };
}

export function draw(canvas, hash) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const pixels = context.createImageData(width, height);
  const { columns, rows, colors } = waves(hash);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const color = [0, 0, 0];
      for (let row = 0; row < rows; row++)
        for (let column = 0; column < columns; column++) {
          const weight = Math.cos((Math.PI * x * column) / width) * Math.cos((Math.PI * y * row) / height);
          colors[row * columns + column].forEach((value, channel) => (color[channel] += value * weight));
        }
      pixels.data.set([...color.map(toSrgb), 255], 4 * (y * width + x));
    }
  context.putImageData(pixels, 0, 0);
}
