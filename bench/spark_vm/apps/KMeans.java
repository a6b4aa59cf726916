import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import org.apache.spark.api.java.JavaRDD;
import scala.Tuple2;

/** Lloyd's k-means: the input is read and kept in memory, then each iteration computes. */
public final class KMeans {
    private static final int CLUSTERS = 16;

    private KMeans() {}

    /** See {@link Application#run}. */
    public static void main(String[] arguments) throws IOException {
        int partitions = Application.number("partitions");
        int iterations = Application.number("iterations");
        Application.run(arguments, (spark, input, output) -> {
            JavaRDD<double[]> points = Application.lines(spark, input, partitions).map(KMeans::parsed).cache();
            List<double[]> centres = points.take(CLUSTERS);
            for (int iteration = 0; iteration < iterations; iteration++) {
                List<double[]> from = centres;
                var sums = points.mapToPair(point -> new Tuple2<>(nearest(point, from), counted(point)))
                        .reduceByKey(KMeans::added, partitions)
                        .collectAsMap();
                centres = new TreeMap<>(sums).values().stream().map(KMeans::mean).toList();
            }
            StringBuilder text = new StringBuilder();
            for (double[] centre : centres) {
                text.append(Arrays.toString(centre));
            }
            return centres.size() + " centres " + Long.toHexString(Application.digest(text.toString()));
        });
    }

    /** Coordinates are whole numbers, so that sums do not depend on the order of addition. */
    private static double[] parsed(String line) {
        return Arrays.stream(line.split(" ")).mapToDouble(Double::parseDouble).toArray();
    }

    private static int nearest(double[] point, List<double[]> centres) {
        int best = 0;
        double least = Double.POSITIVE_INFINITY;
        for (int number = 0; number < centres.size(); number++) {
            double distance = 0;
            double[] centre = centres.get(number);
            for (int each = 0; each < point.length; each++) {
                distance += (point[each] - centre[each]) * (point[each] - centre[each]);
            }
            if (distance < least) {
                least = distance;
                best = number;
            }
        }
        return best;
    }

    private static double[] counted(double[] point) {
        double[] sum = Arrays.copyOf(point, point.length + 1);
        sum[point.length] = 1;
        return sum;
    }

    private static double[] added(double[] one, double[] other) {
        double[] sum = one.clone();
        for (int each = 0; each < sum.length; each++) {
            sum[each] += other[each];
        }
        return sum;
    }

    private static double[] mean(double[] sum) {
        int dimensions = sum.length - 1;
        double[] mean = new double[dimensions];
        for (int each = 0; each < dimensions; each++) {
            mean[each] = sum[each] / sum[dimensions];
        }
        return mean;
    }
}
